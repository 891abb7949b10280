package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/cmd/podd/settings"
)

func newImagePruneCommand(opts *settings.Flags) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "prune", Short: "Remove the images that no container uses", Args: noArgs,
		Long: `Print the images that no container uses and that are not pinned, and what their removal would free. With --yes,
remove them, and the layers that failed pulls have left. The kubelet removes images itself when the disk is full.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			daemon, err := client(opts)
			if err != nil {
				return err
			}
			var p admin.Pruned
			err = daemon.Do(cmd.Context(), http.MethodPost, "/images/prune", admin.PruneRequest{DryRun: !yes}, &p)
			if err != nil {
				return err
			}
			return printPruned(cmd.OutOrStdout(), p, !yes)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "remove them")
	return cmd
}

func printPruned(w io.Writer, p admin.Pruned, dry bool) error {
	freed := p.Unused
	for _, i := range p.Images {
		freed += i.Unique
		printImageNames(w, i.ID, i.Names)
	}
	what := "removed"
	if dry {
		what = "would be removed, with --yes"
	}
	// Layers that only these images share are not in the sum.
	fmt.Fprintf(w, "%d images, at least %s, %s\n", len(p.Images), humanSize(freed), what)
	for _, reason := range p.Failed {
		fmt.Fprintln(w, "not removed: "+oneLine(reason))
	}
	if len(p.Failed) > 0 {
		return errors.New("not all images were removed")
	}
	return nil
}
