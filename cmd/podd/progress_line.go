package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image"
)

// progressLine shows the progress of one file on a terminal's line that it rewrites; elsewhere only the result.
type progressLine struct {
	out      io.Writer
	terminal bool
	title    string
}

// clearLine returns to the start of a terminal's line and clears it.
const clearLine = "\r\x1b[K"

func (l *progressLine) show(p image.PullProgress) {
	if l.terminal {
		fmt.Fprintf(l.out, "%s%s  %s of %s", clearLine, oneLine(l.title), humanSize(p.BytesDone), humanSize(p.BytesTotal))
	}
}

func (l *progressLine) end(how string) {
	if l.terminal {
		fmt.Fprint(l.out, clearLine)
	}
	fmt.Fprintf(l.out, "%s  %s\n", oneLine(l.title), oneLine(how))
}

// oneLine replaces what could move a terminal's cursor: names come from the archive.
func oneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, s)
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}
