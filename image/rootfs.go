package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Contents of a container's directory below <root>/rootfs. Each filesystem is a directory of its own: "root" or
// "volume-<n>".
const (
	rootName     = "root"
	volumePrefix = "volume-"
	mergedName   = "merged" // the mount
	upperName    = "diff"   // what the container wrote, by the name that cAdvisor expects next to merged
	workName     = "work"   // for the kernel
	emptyName    = "empty"  // a lower layer for images that have too few
	mappedName   = "mapped" // the layers with shifted ids, only while mounting
	recordName   = "record.json"
)

// containerName matches a path component. A counted repetition would take 40 KiB.
var containerName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// isContainerID reports whether id is a valid container id: a path component of at most 64 bytes.
func isContainerID(id string) bool { return len(id) <= 64 && containerName.MatchString(id) }

// Rootfs makes a container's root filesystem and returns the path where it is mounted. An existing one, from before a
// crash, is deleted first. With id mappings the layers are mounted with shifted ids; nothing is copied.
//
// Errors: errdefs.ErrNotFound if there is no such image; errdefs.ErrFailedPrecondition if the kernel or the filesystem
// cannot shift ids, or a parent directory is not searchable in the user namespace.
func (s *Store) Rootfs(ctx context.Context, r RootfsRequest) (string, error) {
	m := mountRequest{
		container: r.ContainerID, name: rootName, image: r.ImageID,
		label: r.MountLabel, uids: r.UIDs, gids: r.GIDs, writable: true,
	}
	path, err := s.mount(ctx, m)
	if err != nil {
		return "", fmt.Errorf("root filesystem of container %s: %w", r.ContainerID, err)
	}
	s.rwUsage.add(ctx, r.ContainerID)
	return path, nil
}

// Volume mounts an image read-only for a container and returns the path. Otherwise it behaves like Rootfs.
func (s *Store) Volume(ctx context.Context, r VolumeRequest) (string, error) {
	if r.Index < 0 {
		return "", fmt.Errorf("image volume %d of container %s: %w", r.Index, r.ContainerID, errdefs.ErrInvalidArgument)
	}
	m := mountRequest{
		container: r.ContainerID, name: volumePrefix + strconv.Itoa(r.Index), image: r.ImageID,
		label: r.MountLabel, uids: r.UIDs, gids: r.GIDs,
	}
	path, err := s.mount(ctx, m)
	if err != nil {
		return "", fmt.Errorf("image volume %d of container %s: %w", r.Index, r.ContainerID, err)
	}
	return path, nil
}

// Release unmounts and deletes a container's root filesystem and its image volumes. Absent ones are no error.
func (s *Store) Release(_ context.Context, container string) error {
	if !isContainerID(container) {
		return fmt.Errorf("container id %q: %w", container, errdefs.ErrInvalidArgument)
	}
	if err := s.release(container); err != nil {
		return fmt.Errorf("release filesystems of container %s: %w", container, err)
	}
	return nil
}

// ContainersWithMounts returns the ids of the containers that have a root filesystem or volumes, mounted or not,
// sorted.
func (s *Store) ContainersWithMounts(context.Context) ([]string, error) {
	dirs, err := os.ReadDir(s.layout.Rootfs())
	if err != nil {
		return nil, fmt.Errorf("list root filesystems: %w", err)
	}
	var out []string
	for _, d := range dirs {
		if isContainerID(d.Name()) {
			out = append(out, d.Name())
		}
	}
	return out, nil
}

func (s *Store) containerDir(container string) string {
	return filepath.Join(s.layout.Rootfs(), container)
}

// UpperDir returns the directory with what a container has written to its root filesystem, whether it exists or not.
func (s *Store) UpperDir(container string) string {
	return filepath.Join(s.containerDir(container), rootName, upperName)
}

// release is idempotent and needs only the id. The directory is renamed first, so that its name is free at once; a
// deletion that a crash interrupted is finished at the next start.
func (s *Store) release(container string) error {
	dir := s.containerDir(container)
	if err := unmountAll(dir); err != nil {
		return err
	}
	trash := filepath.Join(s.layout.Rootfs(), trashPrefix+container)
	if err := removeTree(trash); err != nil {
		return err
	}
	if err := os.Rename(dir, trash); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.refs.removeContainer(container)
	return removeTree(trash)
}

// trashPrefix marks directories that are being deleted; no container id begins with a dot.
const trashPrefix = ".del-"

// unmountAll unmounts every filesystem in a container's directory.
func unmountAll(dir string) error {
	parts, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, p := range parts {
		if err := unmountParts(filepath.Join(dir, p.Name())); err != nil {
			return err
		}
	}
	return nil
}

func unmountParts(dir string) error {
	for _, name := range []string{mergedName, mappedName} {
		if err := unmount(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// unmount detaches everything mounted on path. A process that has a file open in it keeps only the file.
func unmount(path string) error {
	for {
		switch err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); {
		case err == nil:
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
			return nil // not a mount, or not there
		default:
			return &os.PathError{Op: "umount", Path: path, Err: err}
		}
	}
}

// recoverRootfs finishes interrupted deletions and records which images are in use.
func (s *Store) recoverRootfs() error {
	dirs, err := os.ReadDir(s.layout.Rootfs())
	if err != nil {
		return fmt.Errorf("list root filesystems: %w", err)
	}
	for _, d := range dirs {
		path := filepath.Join(s.layout.Rootfs(), d.Name())
		if strings.HasPrefix(d.Name(), trashPrefix) {
			if err := errors.Join(unmountAll(path), removeTree(path)); err != nil {
				s.log.WithError(err).WithField("path", path).Warn("failed to finish an interrupted deletion")
			}
			continue
		}
		s.recoverRefs(d.Name(), path)
	}
	return nil
}

// recoverRefs records which images a container uses.
func (s *Store) recoverRefs(container, dir string) {
	parts, err := os.ReadDir(dir)
	if err != nil {
		s.log.WithError(err).WithField("container", container).Warn("failed to read which images a container uses")
		return
	}
	for _, p := range parts {
		raw, err := os.ReadFile(filepath.Join(dir, p.Name(), recordName))
		var r mountRecord
		if err == nil {
			err = json.Unmarshal(raw, &r)
		}
		if err != nil { // a crash interrupted it; Rootfs replaces it, or Release deletes it
			s.log.WithError(err).WithField("container", container).
				Warn("failed to read record of an incomplete root filesystem")
			continue
		}
		s.refs.add(r.Image, container)
	}
}

// mountRecord describes a filesystem. It is written before the mount, so that no image in use is removed after a
// restart.
type mountRecord struct {
	Image string `json:"image"`
}
