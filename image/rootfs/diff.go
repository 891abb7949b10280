package rootfs

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"go.podman.io/storage/pkg/archive"
	"go.podman.io/storage/pkg/chrootarchive"
)

// Diff writes the changes of a container to its root filesystem, as a layer of OCI without compression. They are read
// by a process whose root is that directory: the container's processes may replace directories by links at the same
// time.
func (m *Mounts) Diff(ctx context.Context, container string, w io.Writer) error {
	upper := m.UpperDir(container)
	layer, err := chrootarchive.Tar(upper, &archive.TarOptions{WhiteoutFormat: archive.OverlayWhiteoutFormat}, upper)
	if err != nil {
		return fmt.Errorf("read %s: %w", filepath.Base(upper), err)
	}
	stop := context.AfterFunc(ctx, func() { layer.Close() })
	defer stop()
	_, err = io.Copy(w, layer)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", filepath.Base(upper), err)
	}
	return layer.Close()
}
