package subprocess

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestHead(t *testing.T) {
	c := NewHead(5)
	for _, s := range []string{"abc", "def", "ghi"} {
		if n, err := c.Write([]byte(s)); n != 3 || err != nil {
			t.Errorf("Write = %d, %v, want 3, nil", n, err)
		}
	}
	if got := string(c.Bytes()); got != "abcde" || !c.Truncated() {
		t.Errorf("bytes = %q, truncated: %v, want %q, true", got, c.Truncated(), "abcde")
	}
}

func TestStrictHead(t *testing.T) {
	h := NewStrictHead(5)
	if _, err := h.Write([]byte("abcde")); err != nil || h.Truncated() {
		t.Errorf("Write up to the limit = %v, truncated: %v, want nil, false", err, h.Truncated())
	}
	if n, err := h.Write([]byte("f")); n != 0 || !errors.Is(err, ErrTooMuchOutput) || !h.Truncated() {
		t.Errorf("Write beyond the limit = %d, %v, truncated: %v, want 0, %v, true", n, err, h.Truncated(), ErrTooMuchOutput)
	}
	if _, err := io.Copy(NewStrictHead(5), strings.NewReader("abcdef")); !errors.Is(err, ErrTooMuchOutput) {
		t.Errorf("copy of more than the limit = %v, want %v", err, ErrTooMuchOutput)
	}
}

// TestHeadReadsInSmallPieces: a copy to the buffer, as os/exec makes it, has the same limit, and needs little memory.
func TestHeadReadsInSmallPieces(t *testing.T) {
	c := NewHead(5)
	in := &readSizes{Reader: strings.NewReader(strings.Repeat("x", 3*pipePiece))}
	if n, err := io.Copy(c, in); n != 3*pipePiece || err != nil || string(c.Bytes()) != "xxxxx" {
		t.Errorf("copied %d bytes, %v, kept %q, want %d, none, xxxxx", n, err, c.Bytes(), 3*pipePiece)
	}
	if in.largest != pipePiece {
		t.Errorf("the copy reads with a buffer of %d bytes, want %d", in.largest, pipePiece)
	}
}

// readSizes is a reader that notes the largest buffer it was given, in bytes.
type readSizes struct {
	io.Reader
	largest int
}

func (r *readSizes) Read(p []byte) (int, error) {
	r.largest = max(r.largest, len(p))
	return r.Reader.Read(p)
}
