package vmm

import (
	"bytes"
	"strings"
	"sync"
	"unicode"
)

// tailSize is the size of the kept end of a console, in bytes.
const tailSize = 16 << 10

// Tail keeps the end of its input. It is safe for concurrent use and never fails, so that a guest that
// prints without end costs no memory and is not stopped.
//
// A guest whose kernel panics may hang instead of ending: User-Mode Linux is process 1 of its PID namespace, and so
// does not die of its own abort. The console says so.
type Tail struct {
	// panicked is closed when the kernel has said that it panics.
	panicked chan struct{}

	mu   sync.Mutex
	kept []byte
	said bool
}

// panicText is what Linux prints, whatever its log level is.
const panicText = "Kernel panic - not syncing"

// NewTail returns an empty one.
func NewTail() *Tail { return &Tail{panicked: make(chan struct{})} }

// Write keeps b.
func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b[max(0, len(b)-tailSize):]...)
	if extra := len(t.kept) - tailSize; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
	}
	// The text may come in parts.
	recent := t.kept[max(0, len(t.kept)-len(b)-len(panicText)):]
	if !t.said && bytes.Contains(recent, []byte(panicText)) {
		t.said = true
		close(t.panicked)
	}
	return len(b), nil
}

// Lines returns at most the last n lines, as printable text.
func (t *Tail) Lines(n int) string {
	t.mu.Lock()
	text := string(t.kept)
	t.mu.Unlock()
	text = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) && c != '\n' {
			return -1
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
