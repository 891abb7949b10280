package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/sirupsen/logrus"
	"go.podman.io/storage/pkg/lockfile"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image/layers"
	"github.com/podd-project/podd/image/worker"
)

// ballast is a file of which a removal may take the space: to remove an image storage writes its lists again, which it
// could not on a full disk, and the kubelet could not free it.
type ballast struct {
	layout worker.Layout
	log    logrus.FieldLogger
	mu     sync.Mutex
}

func (b *ballast) path() string { return b.layout.Ballast() }

// lists are the files that a removal writes.
func (b *ballast) lists() []string {
	return []string{filepath.Join(b.layout.Images(), "images"), filepath.Join(b.layout.Layers(), "layers")}
}

// size bounds the bytes that a removal writes: each list several times, since storage marks layers first.
func (b *ballast) size() int64 {
	const margin, times = 1 << 20, 4
	size := int64(margin)
	for _, list := range b.lists() {
		if info, err := os.Stat(list + ".json"); err == nil {
			size += times * info.Size()
		}
	}
	return size
}

// fill makes the file if the disk has room for it.
func (b *ballast) fill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.allocate(b.size()); err != nil {
		_ = os.Remove(b.path()) // a part of it is of no use
		b.log.WithError(err).Warn("no space can be kept for the removal of images from a full disk")
	}
}

func (b *ballast) allocate(size int64) error {
	file, err := os.OpenFile(b.path(), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() >= size {
		return err
	}
	err = unix.Fallocate(int(file.Fd()), 0, 0, size)
	if errors.Is(err, unix.ENOTSUP) {
		_, err = file.WriteAt(make([]byte, size), 0)
	}
	return err
}

// spend removes the file if the disk has less space than that.
func (b *ballast) spend() {
	var disk unix.Statfs_t
	if err := unix.Statfs(b.layout.Root, &disk); err == nil && int64(disk.Bavail)*disk.Bsize < b.size() {
		b.drop()
	}
}

func (b *ballast) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = os.Remove(b.path()) // it may not exist
}

// release runs remove, which may have the space of the ballast. After an error storage reads its lists again: it
// forgets an image before it writes the list.
func (s *Store) release(remove func() error) error {
	s.removals.begun.Add(1)
	defer s.removals.ended.Add(1)
	s.ballast.spend()
	defer s.ballast.fill()
	err := remove()
	if err != nil {
		err = errors.Join(err, s.ballast.reread())
	}
	if !layers.IsFull(err) {
		return err
	}
	s.ballast.drop()
	if err = remove(); err != nil {
		err = errors.Join(err, s.ballast.reread())
	}
	return err
}

// reread makes storage read its lists again.
func (b *ballast) reread() error {
	for _, list := range b.lists() {
		lock, err := lockfile.GetLockFile(list + ".lock")
		if err != nil {
			return fmt.Errorf("read the list of images again: %w", err)
		}
		lock.Lock()
		_, err = lock.RecordWrite()
		lock.Unlock()
		if err != nil {
			return fmt.Errorf("read the list of images again: %w", err)
		}
	}
	return nil
}
