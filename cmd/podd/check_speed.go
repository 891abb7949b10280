package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/daemon"
	"github.com/podd-project/podd/cmd/podd/preflight"
	"github.com/podd-project/podd/cmd/podd/settings"
)

// checkSpeed prints the settings that make pods slow on this node.
func checkSpeed(cmd *cobra.Command, l *settings.Loaded, output outputFormat) error {
	if os.Geteuid() != 0 {
		return errors.New("--speed must run as root: it reads the files that podd reads")
	}
	facts, err := daemon.SpeedFacts(cmd.Context(), l)
	if err != nil {
		return err
	}
	var report preflight.Report
	report.Speed(facts)
	return printReport(cmd.OutOrStdout(), report, output)
}
