package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/cmd/podd/settings"
)

func newImageListCommand(opts *settings.Flags) *cobra.Command {
	var output outputFormat
	var quiet bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "Print the images by name", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if quiet && output != outputText {
				return settings.Error{Err: errors.New("--quiet prints ids as text: leave out --output")}
			}
			disk, err := fetchDisk(cmd.Context(), opts)
			if err != nil {
				return err
			}
			if output != outputText {
				return output.print(cmd.OutOrStdout(), disk.Images)
			}
			if !quiet {
				return printImages(cmd.OutOrStdout(), disk.Images.Items)
			}
			for _, i := range disk.Images.Items {
				fmt.Fprintln(cmd.OutOrStdout(), i.ID)
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print ids only")
	outputFlag(cmd, &output)
	return cmd
}

// printImages prints a line for each name.
func printImages(w io.Writer, images []admin.DiskImage) error {
	out := newTable(w)
	fmt.Fprintln(out, "NAME\tIMAGE\tSIZE\tCONTAINERS\tPINNED")
	for _, i := range images {
		names := i.Names
		if len(names) == 0 {
			names = []string{"<none>"}
		}
		for _, name := range names {
			fmt.Fprintf(out, "%s\t%.13s\t%s\t%d\t%t\n", oneLine(name), i.ID, humanSize(i.Bytes), i.UsedBy, i.Pinned)
		}
	}
	return out.Flush()
}

func printImageNames(w io.Writer, id string, names []string) {
	fmt.Fprintf(w, "%.13s  %s\n", id, oneLine(strings.Join(names, " ")))
}
