package image

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
)

// containersMaxAge is how old the figures of writable layers may be before someone who asks for them has them
// measured anew, in the background.
const containersMaxAge = 30 * time.Second

// usage measures what the store takes on disk, in the background. Layers never change, so each is walked once.
type usage struct {
	s *Store
	// wake asks for a round; it holds one.
	wake chan struct{}
	// layers is the background's own.
	layers     map[string]space
	images     atomic.Pointer[FsUsage]
	containers atomic.Pointer[FsUsage]
	wanted     atomic.Bool // somebody asked for containers
}

// space is what files take.
type space struct{ bytes, inodes uint64 }

func (a space) plus(b space) space { return space{a.bytes + b.bytes, a.inodes + b.inodes} }

func newUsage(s *Store) *usage {
	u := &usage{s: s, wake: make(chan struct{}, 1), layers: map[string]space{}}
	u.images.Store(&FsUsage{Mountpoint: s.cfg.Root, At: time.Now()})
	u.containers.Store(&FsUsage{Mountpoint: s.cfg.Root})
	u.wanted.Store(true)
	return u
}

// FsInfo tells what the images take on disk: their layers, each counted once, and their records. It answers from
// memory; right after a start or a pull, layers that were not measured yet count with the size in their record.
func (s *Store) FsInfo(context.Context) (FsUsage, error) {
	return *s.usage.images.Load(), nil
}

// Usage is FsInfo as a list, and the same for the containers' writable layers. The latter may be half a minute old.
func (s *Store) Usage(context.Context) (images, containers []FsUsage, err error) {
	written := *s.usage.containers.Load()
	if time.Since(written.At) > containersMaxAge {
		s.usage.wanted.Store(true)
		s.usage.kick()
	}
	return []FsUsage{*s.usage.images.Load()}, []FsUsage{written}, nil
}

// kick asks for a round of measuring.
func (u *usage) kick() {
	select {
	case u.wake <- struct{}{}:
	default: // one is due already
	}
}

// run measures when asked to, until ctx ends.
func (u *usage) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-u.wake:
			u.measureImages(ctx)
			if u.wanted.CompareAndSwap(true, false) {
				u.measureContainers(ctx)
			}
		}
	}
}

// measureImages publishes an estimate at once, and the truth when every new layer was walked.
func (u *usage) measureImages(ctx context.Context) {
	ix := u.s.index.Load()
	u.forget(ix)
	records := u.walk(ctx, filepath.Join(u.s.cfg.Root, "overlay-images")).
		plus(u.walk(ctx, filepath.Join(u.s.cfg.Root, "overlay-layers")))
	u.publish(ix, records)
	for _, e := range ix.byID {
		for i, id := range e.layers {
			if _, ok := u.layers[id]; ok {
				continue
			}
			size := u.walk(ctx, e.lowers[i])
			if ctx.Err() != nil {
				return
			}
			u.layers[id] = size
		}
	}
	u.publish(ix, records)
}

// forget drops the layers of images that are gone.
func (u *usage) forget(ix *index) {
	used := map[string]bool{}
	for _, e := range ix.byID {
		for _, id := range e.layers {
			used[id] = true
		}
	}
	for id := range u.layers {
		if !used[id] {
			delete(u.layers, id)
		}
	}
}

// publish adds up what is known; a layer yet to be measured counts with the size in its record.
func (u *usage) publish(ix *index, total space) {
	counted := map[string]bool{}
	for _, e := range ix.byID {
		for i, id := range e.layers {
			if counted[id] {
				continue
			}
			counted[id] = true
			size, ok := u.layers[id]
			if !ok {
				size = space{bytes: e.sizes[i]}
			}
			total = total.plus(size)
		}
	}
	u.images.Store(&FsUsage{Mountpoint: u.s.cfg.Root, Bytes: total.bytes, Inodes: total.inodes, At: time.Now()})
}

// measureContainers walks what containers have written.
func (u *usage) measureContainers(ctx context.Context) {
	ids, err := u.s.Held(ctx)
	if err != nil {
		u.s.log.WithError(err).Warn("cannot measure writable layers")
		return
	}
	var total space
	for _, id := range ids {
		total = total.plus(u.walk(ctx, filepath.Join(u.s.containerDir(id), rootName, upperName)))
	}
	if ctx.Err() != nil {
		return
	}
	u.containers.Store(&FsUsage{Mountpoint: u.s.cfg.Root, Bytes: total.bytes, Inodes: total.inodes, At: time.Now()})
}

// walk adds up a directory tree: blocks taken, files with several names once. What vanishes meanwhile counts nothing.
func (u *usage) walk(ctx context.Context, root string) space {
	var total space
	seen := map[uint64]bool{}
	err := filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return ignoreGone(err)
		}
		info, err := d.Info()
		if err != nil {
			return ignoreGone(err)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || seen[st.Ino] {
			return nil
		}
		if st.Nlink > 1 && !d.IsDir() {
			seen[st.Ino] = true
		}
		total = total.plus(space{bytes: uint64(st.Blocks) * 512, inodes: 1})
		return nil
	})
	if err != nil && ctx.Err() == nil {
		u.s.log.WithError(err).WithField("path", root).Warn("cannot measure")
	}
	return total
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// inode is the number that tells two files of one name apart.
func inode(info os.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}
