package vmm

import (
	"strings"
	"testing"
)

func TestTail(t *testing.T) {
	tail := NewTail()
	for range 1000 {
		_, _ = tail.Write([]byte(strings.Repeat("x", 100) + "\n"))
	}
	_, _ = tail.Write([]byte("\x1b[1mlast\x00 but\u009b\x7f one\nlast \xff line\n"))
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

// TestPanic: a panic of the guest's kernel is noticed, also if its text comes in parts; nothing else is.
func TestPanic(t *testing.T) {
	tail := NewTail()
	panicked := func() bool {
		select {
		case <-tail.panicked:
			return true
		default:
			return false
		}
	}
	for _, c := range []struct {
		text string
		want bool
	}{
		{"panic=-1\nnot syncing\n", false}, {strings.Repeat("x", 2*tailSize), false}, {"[ 1.0] Kernel panic - ", false},
		{"not syncing: sysrq", true}, {panicText, true},
	} {
		if _, err := tail.Write([]byte(c.text)); err != nil || panicked() != c.want {
			t.Errorf("after %.40q, %v: panicked = %v, want %v", c.text, err, panicked(), c.want)
		}
	}
}
