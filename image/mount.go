package image

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

// mountRequest is a filesystem to make for a container.
type mountRequest struct {
	container, name, image, label string
	uids, gids                    []specs.LinuxIDMapping
	writable                      bool
}

// mount makes a filesystem from scratch. It takes no lock of storage, so a running pull does not delay it.
func (s *Store) mount(ctx context.Context, r mountRequest) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if !isContainerID(r.container) {
		return "", fmt.Errorf("container id %q: %w", r.container, errdefs.ErrInvalidArgument)
	}
	e, err := s.find(r.image)
	if err != nil {
		return "", err
	}
	if e.refused != nil {
		return "", fmt.Errorf("image %s: %w", r.image, e.refused)
	}
	if err := s.discard(r); err != nil { // from before a crash
		return "", fmt.Errorf("delete the old one: %w", err)
	}
	if !s.retain(e, r.container) {
		return "", notFound(r.image)
	}
	path, err := s.build(ctx, e, r)
	if err != nil {
		s.refs.remove(e.ID, r.container)
		return "", errors.Join(err, s.undo(r))
	}
	return path, nil
}

// retain prevents an image from being removed; false if it is being removed or was removed since it was looked up.
func (s *Store) retain(e *entry, container string) bool {
	if !s.refs.add(e.ID, container) {
		return false
	}
	if _, ok := s.index.Load().byID[e.ID]; !ok {
		s.refs.remove(e.ID, container)
		return false
	}
	return true
}

// undo removes what a failed build made, and the container's directory if it is empty.
func (s *Store) undo(r mountRequest) error {
	if err := s.discard(r); err != nil {
		return err
	}
	err := os.Remove(s.containerDir(r.container))
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// discard unmounts and deletes one filesystem of a container.
func (s *Store) discard(r mountRequest) error {
	dir := filepath.Join(s.containerDir(r.container), r.name)
	if err := unmountParts(dir); err != nil {
		return err
	}
	return removeTree(dir)
}

// build makes the directories, records the image, and mounts. It undoes nothing.
func (s *Store) build(ctx context.Context, e *entry, r mountRequest) (string, error) {
	ids, err := newIDMap(r.uids, r.gids)
	if err != nil {
		return "", err
	}
	if err := s.checkSearchable(ids); err != nil {
		return "", err
	}
	dir := filepath.Join(s.containerDir(r.container), r.name)
	if err := s.makeContainerDir(r.container, ids); err != nil {
		return "", err
	}
	if err := makePrivateDir(dir, ids); err != nil {
		return "", err
	}
	if err := writeRecord(dir, mountRecord{Image: e.ID}); err != nil {
		return "", err
	}
	o := overlay{
		dir: dir, lowers: e.lowers, writable: r.writable, label: r.label,
		ids: ids, oldKernel: &s.oldKernel,
	}
	if err := o.makeDirs(); err != nil {
		return "", err
	}
	mount := o.mount
	if e.isLazy() {
		mount = func() error { return s.mountLazy(ctx, e, o) }
	}
	if err := mount(); err != nil {
		return "", err
	}
	return filepath.Join(dir, mergedName), nil
}

// makeContainerDir makes a container's directory; it exists if this is not the container's first filesystem.
func (s *Store) makeContainerDir(container string, ids *idMap) error {
	dir := s.containerDir(container)
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

func writeRecord(dir string, r mountRecord) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, recordName), raw, 0o600)
}

// checkSearchable fails if the user namespace's root cannot reach its root filesystem.
func (s *Store) checkSearchable(ids *idMap) error {
	if ids == nil {
		return nil
	}
	for dir := s.layout.Root; ; dir = filepath.Dir(dir) {
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
