package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/tomlconfig"
)

// configHeader opens what `podd config default` prints. contrib/podd.toml is that output.
const configHeader = `# Configuration of podd, with every key at its default.
#
# podd reads /etc/podd/podd.toml and then /etc/podd/podd.toml.d/*.toml in the order of their names. Each key is
# taken from the last file that has it; arrays are replaced, tables are merged. Flags go over files. An unknown
# key is an error. See what is in effect, and which file set it: podd config dump

`

func printDefaultConfig(w io.Writer) error {
	if _, err := io.WriteString(w, configHeader); err != nil {
		return err
	}
	c := defaultConfig()
	return tomlconfig.New(&c).Document(w)
}

func dumpConfig(cmd *cobra.Command, opts *options) error {
	l, err := opts.load()
	if err != nil {
		return err
	}
	return l.set.Dump(cmd.OutOrStdout())
}

// checkConfig says which files were read, so that a misplaced one is noticed.
func checkConfig(cmd *cobra.Command, opts *options) error {
	l, err := opts.load()
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	for _, f := range l.files {
		fmt.Fprintln(out, "read", f)
	}
	if len(l.files) == 0 {
		fmt.Fprintf(out, "no file at %s: defaults\n", opts.file)
	}
	_, err = fmt.Fprintln(out, "the configuration is valid")
	return err
}
