package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/cmd/podd/daemon"
	"github.com/podd-project/podd/cmd/podd/history"
	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/oci/spec/host"
)

func newWipeCommand(opts *settings.Flags) *cobra.Command {
	var yes, images bool
	cmd := &cobra.Command{
		Use: "wipe", Short: "Remove all pods and containers; the daemon must be stopped", Args: noArgs,
		Long: `Remove all pods and containers of podd, with their processes, networks and addresses, mounts, filesystems
and records, including damaged records and the history of operations. Without --yes the command prints what it would
remove, and removes nothing. The daemon must be stopped.

With --images nothing of podd is left but its configuration and the images in image.preload_dir, which podd did not
make.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := opts.Load()
			if err != nil {
				return err
			}
			if admin.NewClient(l.Listen).Running() {
				return fmt.Errorf("a daemon listens on %s: stop it first", l.Listen)
			}
			err = daemon.Offline(cmd.Context(), version, l, cmd.ErrOrStderr(), func(ctx context.Context, n *daemon.Node) error {
				w := wiping{Node: n, root: l.Root, run: l.Run, images: images, out: cmd.OutOrStdout()}
				if !yes {
					return w.announce(ctx)
				}
				return w.do(ctx)
			})
			if err == nil && images {
				err = removeState(cmd.Context(), l)
			}
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), "removed everything")
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "remove; without it, only print what would be removed")
	cmd.Flags().BoolVar(&images, "images", false, "also remove all images")
	return cmd
}

// wiping is one run of `podd wipe`.
type wiping struct {
	*daemon.Node
	root   string
	run    string
	images bool
	out    io.Writer
}

// damaged returns the directories of damaged records.
func (w wiping) damaged() []string {
	return []string{filepath.Join(w.root, "quarantine"), filepath.Join(w.root, "network", "damaged")}
}

// announce prints what do would remove.
func (w wiping) announce(ctx context.Context) error {
	things, err := w.Engine.Inventory(ctx)
	if err != nil {
		return err
	}
	for _, t := range things {
		fmt.Fprintf(w.out, "%s %s %s\n", t.What, t.ID, t.Detail)
	}
	for _, dir := range w.damaged() {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			fmt.Fprintf(w.out, "damaged record %s\n", filepath.Join(dir, e.Name()))
		}
	}
	if w.images {
		list, err := w.Node.Images.List(ctx)
		if err != nil {
			return err
		}
		for _, img := range list {
			fmt.Fprintf(w.out, "image %s %v\n", img.ID, img.Tags)
		}
	}
	return errors.New("nothing was removed; --yes removes all of the above")
}

// do removes everything: pods and containers by the engine's teardown, then resources without a record.
func (w wiping) do(ctx context.Context) error {
	if err := w.Engine.Recover(ctx); err != nil {
		return err
	}
	errs := []error{w.Engine.WaitRecovered(ctx), w.Engine.RemoveAll(ctx), w.Engine.GC(ctx)}
	found, err := w.Engine.Check(ctx)
	errs = append(errs, err)
	for _, f := range found {
		if f.Address() {
			errs = append(errs, w.Engine.FreeAddress(ctx, f.ID))
		}
	}
	for _, dir := range w.damaged() {
		errs = append(errs, os.RemoveAll(dir))
	}
	errs = append(errs, os.RemoveAll(history.Dir(w.root)))
	if w.images {
		errs = append(errs, w.removeImages(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("not everything was removed, run podd wipe again: %w", err)
	}
	if err := w.freeRuntimes(); err != nil {
		return fmt.Errorf("free what runtimes keep for all containers: %w", err)
	}
	return nil
}

// freeRuntimes removes the mounts that runtimes keep without containers: gVisor has an empty network namespace for all
// of its gofers.
func (w wiping) freeRuntimes() error {
	run, err := filepath.EvalSymlinks(w.run)
	if err != nil {
		return err
	}
	dir := filepath.Join(run, "runtimes")
	mounts, err := host.MountsBelow(dir)
	errs := []error{err, host.UnmountBelow(dir)}
	for _, path := range mounts {
		errs = append(errs, os.Remove(path))
	}
	return errors.Join(errs...)
}

func (w wiping) removeImages(ctx context.Context) error {
	list, err := w.Node.Images.List(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, img := range list {
		errs = append(errs, w.Node.Images.Remove(ctx, img.ID))
	}
	return errors.Join(errs...)
}
