package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/daemon"
	"github.com/podd-project/podd/cmd/podd/settings"
)

// checkNode compares the configuration with the machine. It returns an error if there are problems; a note is not one.
func checkNode(cmd *cobra.Command, l *settings.Loaded, output outputFormat) error {
	if os.Geteuid() != 0 {
		return errors.New("--node must run as root: it reads the files that podd reads")
	}
	report, err := daemon.Inspect(cmd.Context(), l)
	if err != nil {
		return err
	}
	if output != outputText {
		err = output.print(cmd.OutOrStdout(), report)
	} else {
		err = report.Print(cmd.OutOrStdout())
	}
	if n := report.Problems(); err == nil && n > 0 {
		err = fmt.Errorf("the node has %d problems", n)
	}
	return err
}
