package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/daemon"
	"github.com/podd-project/podd/cmd/podd/settings"
)

// Exit statuses. A service manager should not restart a daemon whose configuration is wrong, see
// contrib/systemd/podd.service. 78 is EX_CONFIG of sysexits.h; 2 is the status of a Go panic.
const (
	exitFailure = 1
	exitConfig  = 78
)

// execute runs the command line and returns the exit status.
func execute(args []string, stdout, stderr io.Writer) int {
	cmd := newRootCommand()
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	stderr = printable{stderr}
	cmd.SetErr(stderr)
	err := cmd.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "podd:", err)
	if errors.As(err, &settings.Error{}) {
		return exitConfig
	}
	return exitFailure
}

const about = `podd, the pod daemon, runs the pods of a Kubernetes node: it serves the CRI to the kubelet and crictl.
The other commands ask the running daemon, or work without it.

Files:
  /etc/podd/podd.toml, /etc/podd/podd.toml.d/*.toml   the configuration, see podd.toml(5) or podd config default
  /run/podd/podd.sock                                 the CRI
  /run/podd/admin.sock                                the commands' API
  /var/lib/podd                                       records, images, root filesystems, the history

Signals: TERM and INT end the daemon, pods keep running; HUP rereads the configuration; USR1 writes the goroutines to
/run/podd.

Exit status: 0; 1 if the command failed, or a check found a difference; 78 if a flag or the configuration is wrong.`

func newRootCommand() *cobra.Command {
	var opts settings.Flags
	run := func(cmd *cobra.Command, _ []string) error {
		return daemon.Serve(cmd.Context(), version, opts.Load, cmd.ErrOrStderr())
	}
	root := &cobra.Command{
		Use:           "podd",
		Short:         "podd runs the pods of a Kubernetes node: it serves the CRI",
		Long:          about,
		Args:          noArgs,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          run,
	}
	root.SetVersionTemplate("podd {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return settings.Error{Err: fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())}
	})
	opts.Register(root.PersistentFlags())
	root.AddCommand(
		&cobra.Command{Use: "serve", Short: "Run the daemon (the default command)", Args: noArgs, RunE: run},
		newConfigCommand(&opts),
		newStatusCommand(&opts),
		newCheckCommand(&opts),
		newWipeCommand(&opts),
		newHistoryCommand(&opts),
		newBundleCommand(&opts),
		newCheckpointCommand(&opts),
		newImageCommand(&opts),
		newLogLevelCommand(&opts),
		newReloadCommand(&opts),
		newTopCommand(&opts),
		newUICommand(&opts),
		newVMCommand(),
		&cobra.Command{
			Use: "version", Short: "Print the versions of podd, Go and the CRI API", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return printVersion(cmd.OutOrStdout()) },
		},
	)
	addExamples(root)
	return root
}
