package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/sandbox/snapshot"
)

func newCheckpointCommand(opts *settings.Flags) *cobra.Command {
	return newGroup("checkpoint", "Make, restore, verify, sign and move checkpoints of pods",
		newCheckpointCreateCommand(opts), newCheckpointRestoreCommand(opts), newCheckpointSignCommand(opts),
		newCheckpointPushCommand(opts), newCheckpointPullCommand(opts),
		&cobra.Command{
			Use: "inspect DIR", Short: "Print the contents of a checkpoint, whichever node made it", Args: cobra.ExactArgs(1),
			Long: `Print the contents of a directory that CheckpointPod wrote: the pod, its containers, the runtime and the
size of the images. The seal and the images are not verified.`,
			RunE: func(cmd *cobra.Command, args []string) error {
				s, err := snapshot.Inspect(args[0])
				if err != nil {
					return err
				}
				return printCheckpoint(cmd, s)
			},
		},
		&cobra.Command{
			Use: "verify DIR", Short: "Verify that a checkpoint is trusted and unchanged",
			Args: cobra.ExactArgs(1),
			Long: `Verify the seal of a checkpoint with the key of this node, or its signature with runtime.checkpoint_keys, and
the digests of its images, as RestorePod does. All images are read.`,
			RunE: func(cmd *cobra.Command, args []string) error {
				s, err := openCheckpoint(opts, args[0])
				if err != nil {
					return err
				}
				if err := s.Verify(cmd.Context()); err != nil {
					return err
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), "the checkpoint is complete, and made by this node or signed")
				return err
			},
		},
	)
}

// printCheckpoint prints no config: environments have secrets. Values are quoted where a checkpoint of somebody else
// could have control characters.
func printCheckpoint(cmd *cobra.Command, s *snapshot.Snapshot) error {
	out := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
	fmt.Fprintf(out, "digest\tsha256:%s\n", s.Digest)
	fmt.Fprintf(out, "created\t%s\n", s.CreatedAt.Format("2006-01-02T15:04:05Z07:00"))
	fmt.Fprintf(out, "pod\t%.100q\n", s.PodID)
	fmt.Fprintf(out, "runtime\t%.100q on %.20q, images of %s\n", s.Runtime, s.Arch, s.Kind)
	for _, c := range s.Containers {
		fmt.Fprintf(out, "container\t%.100q of image %.100q\n", c.Name, c.ImageID)
	}
	for _, f := range s.Files { // the names of images of CRIU are the writer's
		fmt.Fprintf(out, "file\t%.300q, %d bytes\n", f.Name, f.Size)
	}
	return out.Flush()
}
