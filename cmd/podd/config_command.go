package main

import (
	"errors"
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
	return l.dump(cmd.OutOrStdout())
}

func newConfigCheckCommand(opts *options) *cobra.Command {
	var node bool
	var output outputFormat
	cmd := &cobra.Command{
		Use: "check", Short: "Validate the configuration and exit", Args: noArgs,
		Long: `Validate the configuration and exit, with status 78 if it is wrong.

With --node podd also checks whether this machine has what the configuration needs: directories, runtimes, conmon, the
network and its plugins, the signature policy, registries and credentials, the kernel. It changes nothing, and the
daemon may run. The exit status is 1 if there are problems. A note is no problem: what it is about is provided later by
other programs, such as a network add-on, or is needed by some pods only.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := opts.load()
			if err != nil {
				return err
			}
			switch {
			case node:
				return checkNode(cmd, l, output)
			case output == outputJSON:
				return configError{errors.New("flag --output: json is only for --node")}
			}
			return printCheck(cmd, l, opts.file)
		},
	}
	cmd.Flags().BoolVar(&node, "node", false, "also check the machine")
	outputFlag(cmd, &output)
	return cmd
}

// printCheck prints which files were read, so that a misplaced one is noticed.
func printCheck(cmd *cobra.Command, l *loaded, file string) error {
	out := cmd.OutOrStdout()
	for _, f := range l.files {
		fmt.Fprintln(out, "read", f)
	}
	if len(l.files) == 0 {
		fmt.Fprintf(out, "no file %s, using the defaults\n", file)
	}
	_, err := fmt.Fprintln(out, "the configuration is valid")
	return err
}
