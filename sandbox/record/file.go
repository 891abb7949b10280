package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

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
	// UnsyncedFile is File as long as it may be lost with the power: the creation has not been answered.
	UnsyncedFile = "record.unsynced.json"
)

// ErrUnfinished is the error of a record that is damaged and was not synced: the power was lost, or the disk failed,
// before the creation of the pod or container was answered.
var ErrUnfinished = errors.New("record was not written completely")

// ReadPod reads the pod in dir. See checkpoint.IsPermanent for the errors. boot is the id of the running boot: of a pod
// of an earlier one, a status that is damaged or absent is not an error but lost, and s says that the pod was ready. A
// record that is not synced is of a pod that was being created; ErrUnfinished if it is damaged.
func ReadPod(dir, boot string) (r Pod, s PodStatus, lost, err error) {
	synced, err := read(dir, &r)
	if err != nil {
		return r, s, nil, err
	}
	if r.ID != filepath.Base(dir) || r.Config == nil {
		return r, s, nil, fmt.Errorf("%w: the record in %s is of pod %.80q", checkpoint.ErrCorrupt, dir, r.ID)
	}
	if !synced {
		return r, PodStatus{State: PodCreating}, nil, nil
	}
	err = checkpoint.Read(filepath.Join(dir, StatusFile), StatusVersion, &s)
	if r.beforeBoot(boot) {
		s, lost, err = s.beforeBoot(err)
	}
	return r, s, lost, err
}

// ReadContainer is ReadPod for a container of p. If its status is lost, s says that it was created.
func ReadContainer(dir string, p Pod, boot string) (r Container, s ContainerStatus, lost, err error) {
	synced, err := read(dir, &r)
	if err != nil {
		return r, s, nil, err
	}
	if r.ID != filepath.Base(dir) || r.PodID != p.ID || r.Config == nil {
		return r, s, nil, fmt.Errorf("%w: the record in %s is of container %.80q", checkpoint.ErrCorrupt, dir, r.ID)
	}
	if !synced {
		return r, ContainerStatus{State: ContainerCreating}, nil, nil
	}
	err = checkpoint.Read(filepath.Join(dir, StatusFile), StatusVersion, &s)
	if p.beforeBoot(boot) {
		s, lost, err = s.beforeBoot(r, err)
	}
	return r, s, lost, err
}

// read reads the record in dir into r. synced is false if it may have been lost with the power.
func read(dir string, r any) (synced bool, err error) {
	for range 2 { // it may be renamed between the two names
		err = checkpoint.Read(filepath.Join(dir, File), Version, r)
		if !errors.Is(err, fs.ErrNotExist) {
			return true, err
		}
		unsynced := checkpoint.Read(filepath.Join(dir, UnsyncedFile), Version, r)
		if errors.Is(unsynced, checkpoint.ErrCorrupt) {
			return false, fmt.Errorf("%w: %w", ErrUnfinished, unsynced)
		}
		if !errors.Is(unsynced, fs.ErrNotExist) {
			return false, unsynced
		}
	}
	return false, err
}

// WriteStatus replaces the status in dir. It survives a power loss if it has to, see Status.
func WriteStatus(disk checkpoint.Disk, dir string, status Status) error {
	write := disk.WriteUnsynced
	if status.synced() {
		write = disk.Write
	}
	return write(filepath.Join(dir, StatusFile), StatusVersion, status)
}

// writeBackTime is after how long the kernel has written a file back, which normally takes half a minute.
const writeBackTime = 5 * time.Minute

// SyncStatus completes the WriteStatus of a daemon that may have died in it: others will hear of the status. One that
// was written long ago is on the disk. Syncing those of all containers would delay each start of podd.
func SyncStatus(disk checkpoint.Disk, dir string, status Status) error {
	if !status.synced() {
		return nil
	}
	path := filepath.Join(dir, StatusFile)
	if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > writeBackTime {
		return nil
	}
	return disk.Sync(path)
}
