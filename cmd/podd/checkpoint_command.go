package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/sandbox/snapshot"
)

func newCheckpointCommand(opts *settings.Flags) *cobra.Command {
	return newGroup("checkpoint", "Make, restore, verify, sign and move checkpoints of pods",
		newCheckpointCreateCommand(opts), newCheckpointRestoreCommand(opts), newCheckpointCheckCommand(opts),
		newCheckpointSignCommand(opts), newCheckpointPushCommand(opts), newCheckpointPullCommand(opts),
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

func newCheckpointCheckCommand(opts *settings.Flags) *cobra.Command {
	return &cobra.Command{
		Use: "check POD", Short: "Print why a pod could not be checkpointed", Args: cobra.ExactArgs(1),
		Long: `Print why a checkpoint of all running containers of a pod would fail: POD is the beginning of an id, or
NAMESPACE/NAME.
Exit status 1 if there is a reason. With CRIU the open files of the processes are among them: watches of files,
sockets that lead out of the container. The pod is not frozen, so that a checkpoint may find more.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return settings.Error{Err: errors.New("POD is empty")}
			}
			daemon, err := client(opts)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
			defer cancel()
			s, err := fetchStatus(ctx, daemon, args[0])
			if err != nil {
				return err
			}
			for _, p := range s.Pods {
				for _, why := range p.Obstacles {
					fmt.Fprintln(cmd.OutOrStdout(), oneLine(why))
				}
				if len(p.Obstacles) > 0 {
					return errors.New("the pod cannot be checkpointed")
				}
			}
			return nil
		},
	}
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
