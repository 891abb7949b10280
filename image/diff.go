package image

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"go.podman.io/storage/pkg/archive"
	"go.podman.io/storage/pkg/chrootarchive"
)

// Diff writes what a container has written to its root filesystem, as a layer of OCI without compression. It is read by
// a process whose root is that directory: the container's other processes may replace directories by links meanwhile.
func (s *Store) Diff(ctx context.Context, container string, w io.Writer) error {
	upper := s.UpperDir(container)
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
