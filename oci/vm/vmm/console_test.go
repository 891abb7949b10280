package vmm

import (
	"strings"
	"testing"
)

func TestTail(t *testing.T) {
	var tail Tail
	for range 1000 {
		_, _ = tail.Write([]byte(strings.Repeat("x", 100) + "\n"))
	}
	_, _ = tail.Write([]byte("\x1b[1mlast\x00 but one\nlast \xff line\n"))
	if len(tail.kept) > tailSize {
		t.Errorf("%d bytes are kept, want at most %d", len(tail.kept), tailSize)
	}
	if got, want := tail.Lines(2), "[1mlast but one\nlast ? line"; got != want {
		t.Errorf("Lines(2) = %q, want %q", got, want)
	}
	_, _ = tail.Write(make([]byte, 3*tailSize))
	if len(tail.kept) != tailSize {
		t.Errorf("%d bytes are kept after a long line, want %d", len(tail.kept), tailSize)
	}
}
