package main

import (
	"encoding/json"
	"errors"
	"io"

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
