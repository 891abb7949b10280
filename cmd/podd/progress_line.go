package main

import (
	"fmt"
	"io"

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
