package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/settings"
)

func newConfigCommand(opts *settings.Flags) *cobra.Command {
	return newGroup("config", "Show and check the configuration",
		&cobra.Command{
			Use: "default", Short: "Print a file with every key, its meaning and its default", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return settings.WriteDefault(cmd.OutOrStdout()) },
		},
		&cobra.Command{
			Use: "dump", Short: "Print the effective configuration, with the file or flag that set each key", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return dumpConfig(cmd, opts) },
		},
		newConfigCheckCommand(opts),
	)
}

func dumpConfig(cmd *cobra.Command, opts *settings.Flags) error {
	l, err := opts.Load()
	if err != nil {
		return err
	}
	return l.Dump(cmd.OutOrStdout())
}

func newConfigCheckCommand(opts *settings.Flags) *cobra.Command {
	var node bool
	var output outputFormat
	cmd := &cobra.Command{
		Use: "check", Short: "Validate the configuration and exit", Args: noArgs,
		Long: `Validate the configuration and exit, with status 78 if it is wrong.

With --node podd also checks whether this machine has everything that the configuration needs: directories, runtimes,
conmon, the network and its plugins, the signature policy, registries and credentials, the kernel. It changes nothing,
and the daemon may run. The exit status is 1 if there are problems. A note is not a problem: other programs, such as a
network add-on, provide later the thing that is missing, or only some pods need it, or a setting makes pods slow.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := opts.Load()
			if err != nil {
				return err
			}
			switch {
			case node:
				return checkNode(cmd, l, output)
			case output != outputText:
				return settings.Error{Err: fmt.Errorf("flag --output: %s is only for --node", output)}
			}
			return printCheck(cmd, l, opts.File)
		},
	}
	cmd.Flags().BoolVar(&node, "node", false, "also check the machine")
	outputFlag(cmd, &output)
	return cmd
}

// printCheck prints which files were read, so that a misplaced one is noticed.
func printCheck(cmd *cobra.Command, l *settings.Loaded, file string) error {
	out := cmd.OutOrStdout()
	for _, f := range l.Files {
		fmt.Fprintln(out, "read", f)
	}
	if len(l.Files) == 0 {
		fmt.Fprintf(out, "no file %s, using the defaults\n", file)
	}
	_, err := fmt.Fprintln(out, "the configuration is valid")
	return err
}
