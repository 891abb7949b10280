package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal: programs run on tty; screen has what they print.
type terminal struct {
	keyboard, tty *os.File

	mu     sync.Mutex
	screen strings.Builder
}

// newTerminal opens a terminal with a number of lines.
func newTerminal(t *testing.T, lines int) *terminal {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keyboard.Close() })
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetUint32(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	size := &unix.Winsize{Row: uint16(lines), Col: 120}
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, size); err != nil {
		t.Fatal(err)
	}
	term := &terminal{keyboard: keyboard, tty: tty}
	go func() { _, _ = io.Copy(term, keyboard) }() // ends when the keyboard is closed
	return term
}

// Write adds to the screen.
func (t *terminal) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.screen.Write(b)
}

// text returns what was printed, with lines as programs end them.
func (t *terminal) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ReplaceAll(t.screen.String(), "\r\n", "\n")
}

// await waits until what was printed is complete, and returns it.
func (t *terminal) await(test *testing.T, what string, complete func(text string) bool) string {
	test.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if text := t.text(); complete(text) {
			return text
		}
	}
	test.Fatalf("%s: not printed within %v, but %q", what, patience, t.text())
	return ""
}

// TestTopIsRenewed: on a terminal podd top goes on measuring, until ^C is typed.
func TestTopIsRenewed(t *testing.T) {
	s := newSite(t)
	s.start(t, nil)
	term := newTerminal(t, 24)
	cmd := s.command("top", "--interval", "1s")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.tty, term.tty, term.tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	term.await(t, "the list twice", func(text string) bool {
		return strings.Count(text, clearScreen+"0 pods, ") >= 2
	})
	if _, err := term.keyboard.WriteString("\x03"); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("podd top ended with %v after ^C, want success; it printed %q", err, term.text())
	}
}

// TestTopFitsTheTerminal: a list that is longer than the terminal is cut, and says how much is missing.
func TestTopFitsTheTerminal(t *testing.T) {
	term := newTerminal(t, 10)
	var pods []topItem
	for i := range 20 {
		pods = append(pods, topItem{Name: fmt.Sprintf("n/pod-%02d", i)})
	}
	if err := (topFlags{}).redraw(term.tty, pods); err != nil {
		t.Fatal(err)
	}
	text := term.await(t, "the list", func(text string) bool { return strings.HasSuffix(text, " more\n") })
	// The cursor is below the last line.
	if lines := strings.Count(text, "\n") + 1; lines != 10 || !strings.Contains(text, "n/pod-04\n15 more") {
		t.Errorf("%d lines, want 10 with the first 5 pods:\n%s", lines, text)
	}
}
