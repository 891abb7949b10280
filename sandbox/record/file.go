package record

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/podd-project/podd/checkpoint"
)

// Version and StatusVersion are the formats of the two files.
const (
	Version       = 1
	StatusVersion = 1
)

// The files in the directory of a pod or container, whose name is its id.
const (
	File       = "record.json"
	StatusFile = "status.json"
)

// ReadPod reads the pod in dir. See checkpoint.IsPermanent for the errors. boot is the id of the running boot: of a pod
// of an earlier one, a status that is damaged or absent is no error but lost, and s says that the pod was ready.
func ReadPod(dir, boot string) (r Pod, s PodStatus, lost, err error) {
	if err := checkpoint.Read(filepath.Join(dir, File), Version, &r); err != nil {
		return r, s, nil, err
	}
	if r.ID != filepath.Base(dir) || r.Config == nil {
		return r, s, nil, fmt.Errorf("%w: the record in %s is of pod %.80q", checkpoint.ErrCorrupt, dir, r.ID)
	}
	err = checkpoint.Read(filepath.Join(dir, StatusFile), StatusVersion, &s)
	if r.beforeBoot(boot) {
		s, lost, err = s.beforeBoot(err)
	}
	return r, s, lost, err
}

// ReadContainer is ReadPod for a container of p. If its status is lost, s says that it was created.
func ReadContainer(dir string, p Pod, boot string) (r Container, s ContainerStatus, lost, err error) {
	if err := checkpoint.Read(filepath.Join(dir, File), Version, &r); err != nil {
		return r, s, nil, err
	}
	if r.ID != filepath.Base(dir) || r.PodID != p.ID || r.Config == nil {
		return r, s, nil, fmt.Errorf("%w: the record in %s is of container %.80q", checkpoint.ErrCorrupt, dir, r.ID)
	}
	err = checkpoint.Read(filepath.Join(dir, StatusFile), StatusVersion, &s)
	if p.beforeBoot(boot) {
		s, lost, err = s.beforeBoot(r, err)
	}
	return r, s, lost, err
}

// Create writes a new record and its status to dir, atomically. The record survives a power loss, the status as
// WriteStatus says.
func Create(dir string, record any, status Status) error {
	return checkpoint.Create(filepath.Dir(dir), filepath.Base(dir), func(dir string) error {
		return errors.Join(checkpoint.WriteNew(filepath.Join(dir, File), Version, record), WriteStatus(dir, status))
	})
}

// WriteStatus replaces the status in dir. It survives a power loss if it has to, see Status.
func WriteStatus(dir string, status Status) error {
	write := checkpoint.WriteUnsynced
	if status.synced() {
		write = checkpoint.Write
	}
	return write(filepath.Join(dir, StatusFile), StatusVersion, status)
}
