package rootfs

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"go.podman.io/storage/pkg/archive"
	"go.podman.io/storage/pkg/chrootarchive"

	"github.com/podd-project/podd/image/layers"
)

// Apply makes the changes of a layer, as Diff writes it, in a container's root filesystem, which is mounted. A process
// whose root is that filesystem makes them: no name and no link in the layer leads out of it.
func (m *Mounts) Apply(ctx context.Context, container string, layer io.Reader) error {
	root := filepath.Join(m.containerDir(container), Root, mergedName)
	from := layers.UntilDone{Context: ctx, From: layer}
	_, err := chrootarchive.ApplyUncompressedLayer(root, from, &archive.TarOptions{})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("apply a layer to the root filesystem of container %s: %w", container, err)
	}
	return nil
}
