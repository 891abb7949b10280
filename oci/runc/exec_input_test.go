package runc

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/podd-project/podd/oci"
)

// TestBrokenInput: the command sees the end of its input only if the client has sent it.
func TestBrokenInput(t *testing.T) {
	gone := errors.New("connection reset")
	for name, tt := range map[string]struct {
		input io.Reader
		want  error
	}{
		"ended":  {strings.NewReader("all of it"), nil},
		"broken": {io.MultiReader(strings.NewReader("all of it"), iotest.ErrReader(gone)), os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := newExecIO(oci.Streams{Stdin: tt.input})
			if err != nil {
				t.Fatal(err)
			}
			defer e.close()
			e.copyInput(tt.input)
			if err := e.child[0].SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(e.child[0])
			if string(got) != "all of it" || !errors.Is(err, tt.want) {
				t.Errorf("the command reads %q, %v; want all of it, %v", got, err, tt.want)
			}
		})
	}
}
