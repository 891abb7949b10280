package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/cmd/podd/settings"
)

func newLogLevelCommand(opts *settings.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "log-level [LEVEL]", Short: "Print or change the log level of the running daemon", Args: cobra.MaximumNArgs(1),
		Long: `Print the log level of the running daemon, or change it to trace, debug, info, warning or error until the
daemon is started again.`,
		ValidArgs: []string{"trace", "debug", "info", "warning", "error"},
		RunE: func(cmd *cobra.Command, args []string) error {
			daemon, err := client(opts)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
			defer cancel()
			var level admin.LogLevel
			if len(args) == 0 {
				err = daemon.Get(ctx, "/log-level", &level)
			} else {
				err = daemon.Do(ctx, http.MethodPut, "/log-level", admin.LogLevel{Level: args[0]}, &level)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), level.Level)
			return err
		},
	}
}
