package runc

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/podd-project/podd/oci/subprocess"
)

// TestStderrBeyondLimit: a command that prints more than is held, before it is known to have started, loses nothing.
func TestStderrBeyondLimit(t *testing.T) {
	pipe, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer end.Close()
	var client bytes.Buffer
	c := &commandStderr{
		ctx: t.Context(), client: &client, pipe: pipe, command: &launchedCommand{}, held: subprocess.NewHead(outputLimit),
	}
	var printed string
	for i, text := range []string{strings.Repeat("x", outputLimit-2), "abcdef", "ghi"} {
		printed += text
		if n, err := c.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("Write = %d, %v, want %d, nil", n, err, len(text))
		}
		if i == 0 && client.Len() > 0 {
			t.Errorf("%d bytes were passed on before the start, want none", client.Len())
		}
	}
	if got := client.String(); got != printed {
		t.Errorf("client got %d bytes that end with %q, want %d that end with %q",
			len(got), got[max(len(got)-9, 0):], len(printed), printed[len(printed)-9:])
	}
}
