package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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

// outputFormat is the format of a command's output.
type outputFormat string

const (
	outputText outputFormat = "text"
	outputYAML outputFormat = "yaml" // the third is json
)

// outputFlag adds -o to a command.
func outputFlag(cmd *cobra.Command, format *outputFormat) {
	wordFlag(cmd, format, pflag.Flag{Name: "output", Shorthand: "o", Usage: "output `format`: "}, "text", "json", "yaml")
}

// wordFlag adds a flag whose value is one of several words; the first is the default.
func wordFlag[S ~string](cmd *cobra.Command, value *S, flag pflag.Flag, words ...string) {
	*value = S(words[0])
	of := oneOf[S]{value, words}
	flag.Value, flag.DefValue, flag.Usage = of, words[0], flag.Usage+of.list()
	cmd.Flags().AddFlag(&flag)
	complete := cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	_ = cmd.RegisterFlagCompletionFunc(flag.Name, complete) // the flag exists
}

// oneOf implements pflag.Value.
type oneOf[S ~string] struct {
	value *S
	words []string
}

func (o oneOf[S]) list() string {
	last := len(o.words) - 1
	return strings.Join(o.words[:last], ", ") + " or " + o.words[last]
}

// Set sets the value to one of the words.
func (o oneOf[S]) Set(text string) error {
	if !slices.Contains(o.words, text) {
		return errors.New("want " + o.list())
	}
	*o.value = S(text)
	return nil
}

func (o oneOf[S]) String() string { return string(*o.value) }

// Type is not shown: the usage names the value.
func (oneOf[S]) Type() string { return "word" }
