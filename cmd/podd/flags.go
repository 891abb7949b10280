package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/settings"
)

// noArgs returns a settings.Error for any argument, with the commands that the caller may have meant.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := fmt.Sprintf("see %s --help", cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2
	if meant := cmd.SuggestionsFor(args[0]); len(meant) > 0 {
		hint = "did you mean " + strings.Join(meant, " or ") + "?"
	}
	return settings.Error{Err: fmt.Errorf("unknown command %q (%s)", args[0], hint)}
}

// atMostOne is cobra.MaximumNArgs(1) with the exit status of a wrong command line.
func atMostOne(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return settings.Error{Err: fmt.Errorf("%d arguments, want at most one (see %s --help)", len(args), cmd.CommandPath())}
	}
	return nil
}

// newGroup returns a command that has only subcommands: it prints its help, and an unknown one is an error.
func newGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use: use, Short: short, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	group.AddCommand(commands...)
	return group
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
