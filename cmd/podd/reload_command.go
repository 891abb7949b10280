package main

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/cmd/podd/settings"
)

func newReloadCommand(opts *settings.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "reload", Short: "Make the running daemon read its configuration again", Args: noArgs,
		Long: `Make the running daemon read its configuration again, as SIGHUP does, and print the keys that changed. The
daemon applies all of it, or keeps the present configuration: then the command prints why, and the exit status is 1.
Keys that only a restart can change make it keep the present one. The daemon reads the files and has the flags that it
was started with.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			daemon, err := client(opts)
			if err != nil {
				return err
			}
			var r admin.Reload
			if err := daemon.Do(cmd.Context(), http.MethodPost, "/reload", nil, &r); err != nil {
				return err
			}
			changed := "nothing changed"
			if len(r.Changed) > 0 {
				changed = "changed: " + strings.Join(r.Changed, ", ")
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "generation %d, %s\n", r.Generation, changed)
			return err
		},
	}
}
