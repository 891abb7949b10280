package driver

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestCopyInput: input has ended only if the client has sent its end.
func TestCopyInput(t *testing.T) {
	for name, tt := range map[string]struct {
		input io.Reader
		ended bool
	}{
		"ended": {strings.NewReader("all of it"), true},
		"broken": {
			io.MultiReader(strings.NewReader("all of it"), iotest.ErrReader(errors.New("connection reset"))), false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			if ended := CopyInput(&got, tt.input); ended != tt.ended || got.String() != "all of it" {
				t.Errorf("CopyInput = %v, copied %q, want %v, all of it", ended, got.String(), tt.ended)
			}
		})
	}
}
