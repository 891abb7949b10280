package ocitest

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/podd-project/podd/oci"
)

// What the images of each kind have.
const (
	gvisorImage = "checkpoint.img"
	criuImage   = "core-1.img"
)

var _ oci.Checkpointer = (*Fake)(nil)

// Checkpoint implements oci.Checkpointer. The images have the id of the sandbox.
func (f *Fake) Checkpoint(ctx context.Context, id, dir string) error {
	return f.with(ctx, "checkpoint", id, func(*fakeContainer) error {
		for _, name := range []string{gvisorImage, "pages.img", "pages_meta.img"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(name+" of "+id), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
}

var _ oci.Dumper = (*Fake)(nil)

// Dump implements oci.Dumper. A container that was not thawed counts as paused.
func (f *Fake) Dump(ctx context.Context, containers []oci.Dumped, frozen func(context.Context) error) error {
	for _, c := range containers {
		if err := f.with(ctx, "dump", c.ID, func(*fakeContainer) error { return dumpFake(c) }); err != nil {
			return err
		}
	}
	return frozen(ctx)
}

func dumpFake(c oci.Dumped) error {
	for _, name := range []string{oci.DumpLog, oci.DumpStats, oci.DumpImages + "/" + criuImage} {
		path := filepath.Join(c.Dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(c.ID), 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// Obstacles implements oci.Dumper.
func (f *Fake) Obstacles(context.Context, []string) []string { return nil }

// Thaw implements oci.Dumper.
func (f *Fake) Thaw(ctx context.Context, id string) error {
	return f.with(ctx, "thaw", id, func(*fakeContainer) error { return nil })
}
