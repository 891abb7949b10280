package vmm

import (
	"strings"
	"sync"
)

// tailSize is what is kept of a console, in bytes.
const tailSize = 16 << 10

// Tail keeps the end of what is written to it. It is safe for concurrent use and never fails, so that a guest that
// prints without end costs no memory and is not stopped.
type Tail struct {
	mu   sync.Mutex
	kept []byte
}

// Write keeps b.
func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b[max(0, len(b)-tailSize):]...)
	if extra := len(t.kept) - tailSize; extra > 0 {
		t.kept = append(t.kept[:0], t.kept[extra:]...)
	}
	return len(b), nil
}

// Lines returns at most the last n lines, as printable text.
func (t *Tail) Lines(n int) string {
	t.mu.Lock()
	text := string(t.kept)
	t.mu.Unlock()
	text = strings.Map(func(c rune) rune {
		if c < ' ' && c != '\n' || c == 0x7f {
			return -1
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
