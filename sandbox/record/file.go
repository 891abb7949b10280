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

// ReadPod reads the pod in dir. See checkpoint.Damaged for the errors.
func ReadPod(dir string) (r Pod, s PodStatus, err error) {
	if err := read(dir, &r, &s); err != nil {
		return r, s, err
	}
	if r.ID != filepath.Base(dir) || r.Config == nil {
		return r, s, fmt.Errorf("%w: the record in %s is of pod %.80q", checkpoint.ErrCorrupt, dir, r.ID)
	}
	return r, s, nil
}

// ReadContainer is ReadPod for a container of the pod.
func ReadContainer(dir, podID string) (r Container, s ContainerStatus, err error) {
	if err := read(dir, &r, &s); err != nil {
		return r, s, err
	}
	if r.ID != filepath.Base(dir) || r.PodID != podID || r.Config == nil {
		return r, s, fmt.Errorf("%w: the record in %s is of container %.80q", checkpoint.ErrCorrupt, dir, r.ID)
	}
	return r, s, nil
}

func read(dir string, record, status any) error {
	if err := checkpoint.Read(filepath.Join(dir, File), Version, record); err != nil {
		return err
	}
	return checkpoint.Read(filepath.Join(dir, StatusFile), StatusVersion, status)
}

// Create writes a new record and its status to dir, atomically.
func Create(dir string, record, status any) error {
	return checkpoint.Create(filepath.Dir(dir), filepath.Base(dir), func(dir string) error {
		return errors.Join(
			checkpoint.WriteNew(filepath.Join(dir, File), Version, record),
			checkpoint.WriteNew(filepath.Join(dir, StatusFile), StatusVersion, status))
	})
}

// WriteStatus replaces the status in dir.
func WriteStatus(dir string, status any) error {
	return checkpoint.Write(filepath.Join(dir, StatusFile), StatusVersion, status)
}
