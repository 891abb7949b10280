package main

import (
	"strings"
	"testing"

	"github.com/podd-project/podd/image"
)

// TestProgressLine: a terminal's line is rewritten, other outputs get only the result. A name cannot move
// the cursor.
func TestProgressLine(t *testing.T) {
	for terminal, want := range map[bool]string{
		true:  "\r\x1b[Ka?[1A  512 B of 1.0 KiB\r\x1b[Ka?[1A  imported\n",
		false: "a?[1A  imported\n",
	} {
		var out strings.Builder
		l := progressLine{out: &out, terminal: terminal, title: "a\x1b[1A"}
		l.show(image.PullProgress{BytesDone: 512, BytesTotal: 1024})
		l.end("imported")
		if out.String() != want {
			t.Errorf("on a terminal (%t) it wrote %q, want %q", terminal, out.String(), want)
		}
	}
}
