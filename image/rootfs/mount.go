package rootfs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Request is a filesystem to make for a container.
type Request struct {
	Container string
	// Name is Root or that of a Volume.
	Name string
	// Image is the id of the image.
	Image string
	// Layers are the directories of the image's layers, top first.
	Layers   []string
	Writable bool
	// MaxBytes bounds the files in a writable filesystem; 0: no limit. A write above it fails with EDQUOT
	// or, on XFS, ENOSPC.
	MaxBytes int64
	// Label is the SELinux label of the mount, empty for none.
	Label string
	// UIDs and GIDs are the mappings of the pod's user namespace, empty for none.
	UIDs, GIDs []specs.LinuxIDMapping
	// Mount mounts the overlay. Nil: Overlay.Mount does.
	Mount func(Overlay) error
}

// Make makes a filesystem from scratch and returns the path where it is mounted. An existing one, from before a crash,
// is deleted first. It takes no lock of storage, so a running pull does not delay it.
//
// Errors: errdefs.ErrNotFound for an image that is being removed; errdefs.ErrFailedPrecondition if the kernel or the
// filesystem cannot shift ids, a parent directory is not searchable in the user namespace, or there are no quotas for
// MaxBytes.
func (m *Mounts) Make(ctx context.Context, r Request) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if !isContainerID(r.Container) {
		return "", fmt.Errorf("container id %q: %w", r.Container, errdefs.ErrInvalidArgument)
	}
	if err := m.discard(r); err != nil { // from before a crash
		return "", fmt.Errorf("delete the old one: %w", err)
	}
	if !m.retain(r.Image, r.Container) {
		return "", fmt.Errorf("image %q: %w", r.Image, errdefs.ErrNotFound)
	}
	if err := m.build(r); err != nil {
		m.Users.remove(r.Image, r.Container)
		return "", errors.Join(err, m.undo(r))
	}
	if r.Writable {
		m.writable.add(ctx, r.Container)
	}
	return filepath.Join(m.containerDir(r.Container), r.Name, mergedName), nil
}

// retain prevents an image from being removed; false if it is being removed or was removed since it was looked up.
func (m *Mounts) retain(image, container string) bool {
	if !m.Users.add(image, container) {
		return false
	}
	if !m.stored(image) {
		m.Users.remove(image, container)
		return false
	}
	return true
}

// undo removes the output of a failed build, and the container's directory if it is empty.
func (m *Mounts) undo(r Request) error {
	if err := m.discard(r); err != nil {
		return err
	}
	err := os.Remove(m.containerDir(r.Container))
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// discard unmounts and deletes one filesystem of a container.
func (m *Mounts) discard(r Request) error {
	dir := filepath.Join(m.containerDir(r.Container), r.Name)
	if err := unmountParts(dir); err != nil {
		return err
	}
	m.unbound(dir)
	return removeTree(dir)
}

// build makes the directories, records the image, and mounts. It undoes nothing.
func (m *Mounts) build(r Request) error {
	ids, err := newIDMap(r.UIDs, r.GIDs)
	if err != nil {
		return err
	}
	if err := m.checkSearchable(ids); err != nil {
		return err
	}
	dir := filepath.Join(m.containerDir(r.Container), r.Name)
	if err := m.makeContainerDir(r.Container, ids); err != nil {
		return err
	}
	if err := makePrivateDir(dir, ids); err != nil {
		return err
	}
	rec := record{Image: r.Image}
	if r.MaxBytes > 0 {
		if rec.Project, err = m.quota.newProject(); err != nil {
			return err
		}
	}
	if err := writeRecord(dir, rec); err != nil {
		return err
	}
	o := Overlay{
		Dir: dir, Lowers: r.Layers, Writable: r.Writable, Label: r.Label,
		ids: ids, oldKernel: &m.oldKernel,
	}
	if err := o.makeDirs(); err != nil {
		return err
	}
	if rec.Project != 0 {
		if err := m.bound(dir, rec.Project, r.MaxBytes); err != nil {
			return fmt.Errorf("bound the writable layer: %w", err)
		}
	}
	if r.Mount != nil {
		return r.Mount(o)
	}
	return o.Mount()
}

// bound limits the files of a writable filesystem.
func (m *Mounts) bound(dir string, project uint32, bytes int64) error {
	for _, name := range []string{upperName, workName} {
		if err := setProject(filepath.Join(dir, name), project); err != nil {
			return err
		}
	}
	return m.quota.limit(project, bytes)
}

// makeContainerDir makes a container's directory; it exists if this is not the container's first filesystem.
func (m *Mounts) makeContainerDir(container string, ids *idMap) error {
	dir := m.containerDir(container)
	err := makePrivateDir(dir, ids)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// makePrivateDir makes a directory that only root and the root of the user namespace can enter: an image may hold
// set-uid programs that other users of the node must not reach.
func makePrivateDir(dir string, ids *idMap) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if ids == nil {
		return nil
	}
	if err := os.Lchown(dir, 0, ids.rootGID()); err != nil {
		return err
	}
	return os.Chmod(dir, 0o710)
}

// unbound removes the limit of a filesystem before it is deleted: the kernel keeps limits without files. A leftover
// takes 72 bytes, and does not keep the container from being removed.
func (m *Mounts) unbound(dir string) {
	r, err := readRecord(dir)
	if err != nil || r.Project < firstProject {
		return
	}
	err = m.quota.limit(r.Project, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.ENOSYS) { // quotas were turned off
		m.log.WithError(err).WithField("project", r.Project).Warn("failed to remove the quota of a deleted container")
	}
}

func writeRecord(dir string, r record) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, recordName), raw, 0o600)
}

// checkSearchable fails if the user namespace's root cannot reach its root filesystem.
func (m *Mounts) checkSearchable(ids *idMap) error {
	if ids == nil {
		return nil
	}
	for dir := m.dir; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("directory %s (mode %04o) is not searchable in a user namespace, it needs o+x: %w",
				dir, info.Mode().Perm(), errdefs.ErrFailedPrecondition)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}
