package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

func newWipeCommand(opts *options) *cobra.Command {
	var yes, images bool
	cmd := &cobra.Command{
		Use: "wipe", Short: "Remove every pod and container of this podd, and with --images its images (daemon stopped)", Args: noArgs,
		Long: `Remove every pod and container of this podd with all that belongs to them: processes, networks and addresses, mounts, file systems
and records, also the damaged ones. Without --yes it prints what that is, and removes nothing. The daemon must be stopped.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := opts.load()
			if err != nil {
				return err
			}
			if listening(l.Listen) {
				return fmt.Errorf("a daemon listens on %s: stop it first", l.Listen)
			}
			return offline(cmd, l, func(ctx context.Context, n *node) error {
				w := wiping{node: n, root: l.Root, images: images, out: cmd.OutOrStdout()}
				if !yes {
					return w.announce(ctx)
				}
				return w.do(ctx)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	cmd.Flags().BoolVar(&images, "images", false, "remove all images, too")
	return cmd
}

// wiping is one run of `podd wipe`.
type wiping struct {
	*node
	root   string
	images bool
	out    io.Writer
}

// damaged are the directories of records that could not be read.
func (w wiping) damaged() []string {
	return []string{filepath.Join(w.root, "quarantine"), filepath.Join(w.root, "network", "damaged")}
}

// announce says what do would remove.
func (w wiping) announce(ctx context.Context) error {
	things, err := w.engine.Inventory(ctx)
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
		list, err := w.node.images.List(ctx)
		if err != nil {
			return err
		}
		for _, img := range list {
			fmt.Fprintf(w.out, "image %s %v\n", img.ID, img.Tags)
		}
	}
	return errors.New("nothing was removed: --yes removes all of the above")
}

// do removes everything: as the daemon would, by the engine's own teardown, and whatever no record claims.
func (w wiping) do(ctx context.Context) error {
	if err := w.engine.Recover(ctx); err != nil {
		return err
	}
	errs := []error{w.engine.Settled(ctx), w.engine.RemoveAll(ctx), w.engine.Collect(ctx)}
	found, err := w.engine.Check(ctx)
	errs = append(errs, err)
	for _, f := range found {
		if f.Address() {
			errs = append(errs, w.engine.FreeAddress(ctx, f.ID))
		}
	}
	for _, dir := range w.damaged() {
		errs = append(errs, os.RemoveAll(dir))
	}
	if w.images {
		errs = append(errs, w.removeImages(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("not everything could be removed, run it again: %w", err)
	}
	fmt.Fprintln(w.out, "everything was removed")
	return nil
}

func (w wiping) removeImages(ctx context.Context) error {
	list, err := w.node.images.List(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, img := range list {
		errs = append(errs, w.node.images.Remove(ctx, img.ID))
	}
	return errors.Join(errs...)
}
