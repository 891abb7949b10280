package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/settings"
)

// noArgs returns a settings.Error for any argument.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return settings.Error{Err: fmt.Errorf("unknown command %q (see %s --help)", args[0], cmd.CommandPath())}
	}
	return nil
}

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
