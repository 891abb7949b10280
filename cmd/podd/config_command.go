package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/tomlconfig"
)

// configHeader is the beginning of the output of `podd config default`. contrib/podd.toml is that output.
const configHeader = `# Configuration of podd, with every key at its default.
#
# podd reads /etc/podd/podd.toml and then /etc/podd/podd.toml.d/*.toml, in the order of their names. Keys of a later
# file override those of an earlier one; tables are merged, arrays are replaced. Flags override files. An unknown key
# is an error. podd config dump prints the effective configuration, with the file or flag that set each key.

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

// checkConfig prints which files were read, so that a misplaced one is noticed.
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
		fmt.Fprintf(out, "no file %s, using the defaults\n", opts.file)
	}
	_, err = fmt.Fprintln(out, "the configuration is valid")
	return err
}
