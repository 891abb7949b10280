package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/cmd/podd/settings"
)

func newImageDiskCommand(opts *settings.Flags) *cobra.Command {
	var output outputFormat
	cmd := &cobra.Command{
		Use: "df", Short: "Print the disk space of images and of containers' writable layers", Args: noArgs,
		Long: `Print the disk space of each image, and of what each container has written to its root filesystem, the
largest first. UNIQUE is the part of an image that no other image shares: what its removal frees.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			disk, err := fetchDisk(cmd.Context(), opts)
			if err != nil {
				return err
			}
			if output != outputText {
				return output.print(cmd.OutOrStdout(), disk)
			}
			return printDisk(cmd.OutOrStdout(), disk)
		},
	}
	outputFlag(cmd, &output)
	return cmd
}

// fetchDisk gets the disk space of images and containers from the daemon.
func fetchDisk(ctx context.Context, opts *settings.Flags) (disk admin.Disk, err error) {
	daemon, err := client(opts)
	if err != nil {
		return disk, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err = daemon.Get(ctx, fmt.Sprintf("/disk?limit=%d", admin.MaxLimit), &disk)
	return disk, err
}

func printDisk(w io.Writer, d admin.Disk) error {
	out := newTable(w)
	fmt.Fprintln(out, "IMAGE\tSIZE\tUNIQUE\tCONTAINERS\tNAMES")
	for _, i := range d.Images.Items {
		fmt.Fprintf(out, "%.13s\t%s\t%s\t%d\t%s\n", i.ID, humanSize(i.Bytes), humanSize(i.Unique), i.UsedBy,
			strings.Join(i.Names, " "))
	}
	fmt.Fprintf(out, "all layers\t%s\n", humanSize(d.Layers))
	fmt.Fprintf(out, "of no image\t%s\t\t\tleft by failed pulls\n\n", humanSize(d.Unused))
	fmt.Fprintln(out, "CONTAINER\tWRITTEN\tFILES\tNAME")
	for _, c := range d.Containers.Items {
		fmt.Fprintf(out, "%.13s\t%s\t%d\t%s\n", c.ID, humanSize(c.Bytes), c.Inodes, c.Name)
	}
	return out.Flush()
}
