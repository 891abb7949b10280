package image

import (
	"context"
	"fmt"
	"io"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/image/rootfs"
	"github.com/podd-project/podd/image/worker"
)

// Rootfs makes a container's root filesystem and returns the path where it is mounted. An existing one, from before a
// crash, is deleted first. With id mappings the layers are mounted with shifted ids; nothing is copied.
//
// Errors: errdefs.ErrNotFound for an unknown image; errdefs.ErrFailedPrecondition if the kernel or the filesystem
// cannot shift ids, a parent directory is not searchable in the user namespace, or there are no project quotas for
// Config.MaxWritableBytes.
func (s *Store) Rootfs(ctx context.Context, r RootfsRequest) (string, error) {
	if e, err := s.find(r.ImageID); err == nil && e.Config.Labels[worker.ArtifactLabel] != "" {
		return "", fmt.Errorf("image %s is an artifact, not a container image: it can only be a volume: %w", r.ImageID,
			errdefs.ErrInvalidArgument)
	}
	path, err := s.mount(ctx, r.ImageID, rootfs.Request{
		Container: r.ContainerID, Name: rootfs.Root, Label: r.MountLabel, UIDs: r.UIDs, GIDs: r.GIDs, Writable: true,
		MaxBytes: s.cfg().MaxWritableBytes,
	})
	if err != nil {
		return "", fmt.Errorf("root filesystem of container %s: %w", r.ContainerID, err)
	}
	return path, nil
}

// Volume mounts an image read-only for a container and returns the path. Otherwise it behaves like Rootfs.
func (s *Store) Volume(ctx context.Context, r VolumeRequest) (string, error) {
	if r.Index < 0 {
		return "", fmt.Errorf("image volume %d of container %s: %w", r.Index, r.ContainerID, errdefs.ErrInvalidArgument)
	}
	path, err := s.mount(ctx, r.ImageID, rootfs.Request{
		Container: r.ContainerID, Name: rootfs.Volume(r.Index), Label: r.MountLabel, UIDs: r.UIDs, GIDs: r.GIDs,
	})
	if err != nil {
		return "", fmt.Errorf("image volume %d of container %s: %w", r.Index, r.ContainerID, err)
	}
	return path, nil
}

// mount makes a filesystem of an image.
func (s *Store) mount(ctx context.Context, ref string, r rootfs.Request) (string, error) {
	e, err := s.find(ref)
	if err != nil {
		return "", err
	}
	if e.refused != nil {
		return "", fmt.Errorf("image %s: %w", ref, e.refused)
	}
	r.Image, r.Layers = e.ID, e.lowers
	if e.isLazy() {
		r.Mount = func(o rootfs.Overlay) error { return s.mountLazy(ctx, e, o) }
	}
	return s.mounts.Make(ctx, r)
}

// Release is that of rootfs.Mounts.
func (s *Store) Release(_ context.Context, container string) error {
	return s.mounts.Release(container)
}

// ContainersWithMounts is Containers of rootfs.Mounts.
func (s *Store) ContainersWithMounts(context.Context) ([]string, error) { return s.mounts.Containers() }

// UpperDir is that of rootfs.Mounts.
func (s *Store) UpperDir(container string) string { return s.mounts.UpperDir(container) }

// Diff is that of rootfs.Mounts.
func (s *Store) Diff(ctx context.Context, container string, w io.Writer) error {
	return s.mounts.Diff(ctx, container, w)
}

// Apply is that of rootfs.Mounts.
func (s *Store) Apply(ctx context.Context, container string, layer io.Reader) error {
	return s.mounts.Apply(ctx, container, layer)
}

// Writable is that of rootfs.Mounts.
func (s *Store) Writable(container string) (FsUsage, bool) { return s.mounts.Writable(container) }

// Filesystem is that of rootfs.Mounts.
func (s *Store) Filesystem() Filesystem { return s.mounts.Filesystem() }
