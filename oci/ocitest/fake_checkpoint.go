package ocitest

import (
	"context"
	"os"
	"path/filepath"

	"github.com/podd-project/podd/oci"
)

var _ oci.Checkpointer = (*Fake)(nil)

// Checkpoint implements oci.Checkpointer. The images have the id of the sandbox.
func (f *Fake) Checkpoint(ctx context.Context, id, dir string) error {
	return f.with(ctx, "checkpoint", id, func(*fakeContainer) error {
		for _, name := range []string{"checkpoint.img", "pages.img", "pages_meta.img"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(name+" of "+id), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
}
