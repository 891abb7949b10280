package main

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"
)

// outputFormat is the format of a command's output, and the value of the flag for it.
type outputFormat string

const (
	outputText outputFormat = "text"
	outputJSON outputFormat = "json"
)

// outputFlag adds -o to a command.
func outputFlag(cmd *cobra.Command, format *outputFormat) {
	*format = outputText
	cmd.Flags().VarP(format, "output", "o", "output `format`: text or json")
}

// Set implements pflag.Value.
func (f *outputFormat) Set(text string) error {
	format := outputFormat(text)
	if format != outputText && format != outputJSON {
		return errors.New("want text or json")
	}
	*f = format
	return nil
}

// String and Type implement pflag.Value.
func (f *outputFormat) String() string { return string(*f) }
func (*outputFormat) Type() string     { return "format" }

func printJSON(w io.Writer, v any) error {
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
