// Package rootfs makes the filesystems of containers from the layers of images: one overlay for each root filesystem
// and each image volume, by container id. It also measures, copies, changes and deletes the files that containers
// write.
//
// It owns one directory, in which each container has one. It knows no names of images, pulls or storage: a caller
// passes the directories of the layers, and the image's id, which is recorded. It runs in the daemon. image calls it,
// and image/lazy mounts its Overlay in another process.
package rootfs

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
	"sync/atomic"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// Contents of a container's directory. Each filesystem is a separate directory: Root, or Volume(n).
const (
	// Root is the name of a root filesystem.
	Root         = "root"
	volumePrefix = "volume-"
	mergedName   = "merged" // the mount
	upperName    = "diff"   // the container's changes, by the name that cAdvisor expects next to merged
	workName     = "work"   // for the kernel
	emptyName    = "empty"  // a lower layer for images that have too few
	mappedName   = "mapped" // the layers with shifted ids, only while mounting
	recordName   = "record.json"
)

// Volume is the name of a container's image volume.
func Volume(index int) string { return volumePrefix + strconv.Itoa(index) }

// containerName matches a path component. A counted repetition would take 40 KiB.
var containerName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// isContainerID reports whether id is a valid container id: a path component of at most 64 bytes.
func isContainerID(id string) bool { return len(id) <= 64 && containerName.MatchString(id) }

// Mounts are the filesystems of the containers.
type Mounts struct {
	// Users are the containers that use each image.
	Users     *Users
	dir       string
	log       logrus.FieldLogger
	stored    func(image string) bool
	writable  *writable
	quota     quota
	oldKernel atomic.Bool // mount overlays with mount(2) only
}

// New returns the filesystems below dir, a directory below root, the store's. Stored reports whether an image may be
// used: it is called after the image's user was recorded, which keeps the image from being removed.
func New(root, dir string, stored func(image string) bool, log logrus.FieldLogger) *Mounts {
	m := &Mounts{Users: newUsers(), dir: dir, log: log, stored: stored, quota: quota{dir: dir}}
	m.writable = newWritable(root, m.Containers, func(ctx context.Context, container string) Size {
		return Measure(ctx, m.UpperDir(container), log)
	})
	return m
}

// Run measures writable layers until ctx ends.
func (m *Mounts) Run(ctx context.Context) {
	go m.writable.watchDisk(ctx) // a disk that hangs must not keep Run from returning
	m.writable.run(ctx)
}

// Release unmounts and deletes a container's root filesystem and its image volumes. Absent ones are not an error.
func (m *Mounts) Release(container string) error {
	if !isContainerID(container) {
		return fmt.Errorf("container id %q: %w", container, errdefs.ErrInvalidArgument)
	}
	if err := m.release(container); err != nil {
		return fmt.Errorf("release filesystems of container %s: %w", container, err)
	}
	return nil
}

// Containers returns the ids of the containers that have a root filesystem or volumes, mounted or not, sorted.
func (m *Mounts) Containers() ([]string, error) {
	dirs, err := os.ReadDir(m.dir)
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

func (m *Mounts) containerDir(container string) string { return filepath.Join(m.dir, container) }

// UpperDir returns the directory with the changes of a container to its root filesystem, whether it exists or not.
func (m *Mounts) UpperDir(container string) string {
	return filepath.Join(m.containerDir(container), Root, upperName)
}

// release is idempotent and needs only the id. The directory is renamed first, so that its name is free at once; a
// deletion that a crash interrupted is finished at the next start.
func (m *Mounts) release(container string) error {
	dir := m.containerDir(container)
	if err := m.detach(dir); err != nil {
		return err
	}
	trash := filepath.Join(m.dir, trashPrefix+container)
	if err := removeTree(trash); err != nil {
		return err
	}
	if err := os.Rename(dir, trash); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	m.Users.removeContainer(container)
	return removeTree(trash)
}

// trashPrefix marks directories that are being deleted; no container id begins with a dot.
const trashPrefix = ".del-"

// detach unmounts every filesystem in a container's directory, and removes their limits.
func (m *Mounts) detach(dir string) error {
	parts, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, p := range parts {
		part := filepath.Join(dir, p.Name())
		if err := unmountParts(part); err != nil {
			return err
		}
		m.unbound(part)
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

// Recover finishes interrupted deletions and reads which images are in use, at start.
func (m *Mounts) Recover() error {
	dirs, err := os.ReadDir(m.dir)
	if err != nil {
		return fmt.Errorf("list root filesystems: %w", err)
	}
	for _, d := range dirs {
		path := filepath.Join(m.dir, d.Name())
		if strings.HasPrefix(d.Name(), trashPrefix) {
			if err := errors.Join(m.detach(path), removeTree(path)); err != nil {
				m.log.WithError(err).WithField("path", path).Warn("failed to finish an interrupted deletion")
			}
			continue
		}
		m.recoverUsers(d.Name(), path)
	}
	return nil
}

// recoverUsers records which images a container uses.
func (m *Mounts) recoverUsers(container, dir string) {
	parts, err := os.ReadDir(dir)
	if err != nil {
		m.log.WithError(err).WithField("container", container).Warn("failed to read which images a container uses")
		return
	}
	for _, p := range parts {
		r, err := readRecord(filepath.Join(dir, p.Name()))
		if err != nil { // a crash interrupted it; Make replaces it, or Release deletes it
			m.log.WithError(err).WithField("container", container).
				Warn("failed to read record of an incomplete root filesystem")
			continue
		}
		m.Users.add(r.Image, container)
	}
}

// record describes a filesystem. It is written before the mount, so that no image in use is removed after a restart.
type record struct {
	Image string `json:"image"`
	// Project is the id of the writable layer's quota, 0 for none.
	Project uint32 `json:"project,omitempty"`
}

func readRecord(dir string) (record, error) {
	raw, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return record{}, err
	}
	var r record
	err = json.Unmarshal(raw, &r)
	return r, err
}
