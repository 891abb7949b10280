package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"unicode"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"
)

// print writes v, unless the format is text.
func (f outputFormat) print(w io.Writer, v any) error {
	if f == outputYAML {
		text, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// newTable returns a writer that aligns columns, which are separated by tabs. To be flushed.
func newTable(w io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(printable{w}, 0, 8, 2, ' ', 0)
}

// printable replaces what could control a terminal: errors quote images, guests of virtual machines and plugins.
type printable struct{ w io.Writer }

func (p printable) Write(b []byte) (int, error) {
	text := strings.Map(func(c rune) rune {
		if c == '\n' || unicode.IsPrint(c) {
			return c
		}
		return '?'
	}, string(b))
	if _, err := io.WriteString(p.w, text); err != nil {
		return 0, err
	}
	return len(b), nil
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

// humanSize returns a number of bytes with three digits or so and a binary unit: 1.5 MiB.
func humanSize(n uint64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	size, units := float64(n)/(1<<10), "KMGTPE"
	for size >= 1000 && len(units) > 1 {
		size, units = size/(1<<10), units[1:]
	}
	if size < 10 {
		return fmt.Sprintf("%.1f %ciB", size, units[0])
	}
	return fmt.Sprintf("%.0f %ciB", size, units[0])
}
