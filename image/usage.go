package image

import (
	"context"
	"maps"
	"sync/atomic"
	"time"

	"go.podman.io/storage"

	"github.com/podd-project/podd/image/rootfs"
)

// usage measures the disk space of the images, in the background. Layers never change, so each is walked once.
type usage struct {
	s *Store
	// requested holds a value while a measurement is due.
	requested chan struct{}
	// layers is accessed by run only.
	layers map[string]rootfs.Size
	images atomic.Pointer[FsUsage]
	// unused are the bytes of the layers of no image.
	unused atomic.Uint64
	// known is a copy of layers, for other goroutines.
	known atomic.Pointer[map[string]rootfs.Size]
}

func newUsage(s *Store) *usage {
	u := &usage{s: s, requested: make(chan struct{}, 1), layers: map[string]rootfs.Size{}}
	u.images.Store(&FsUsage{Mountpoint: s.layout.Root, At: time.Now()})
	u.known.Store(&map[string]rootfs.Size{})
	return u
}

// Usage returns the space used by the images and by the containers' writable layers (see Writable). Image layers are
// counted once each, with their records. It answers from memory; right after a start or a pull, layers that were not
// measured yet count with the size in their record.
func (s *Store) Usage(context.Context) (images, containers []FsUsage, err error) {
	return []FsUsage{*s.usage.images.Load()}, []FsUsage{s.mounts.WritableTotal()}, nil
}

// request asks for a measurement. It does not block.
func (u *usage) request() {
	select {
	case u.requested <- struct{}{}:
	default: // one is due already
	}
}

// run measures on request, until ctx ends.
func (u *usage) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-u.requested:
			u.measureImages(ctx)
		}
	}
}

// measureImages publishes an estimate at once, and the exact figure when every new layer was walked.
func (u *usage) measureImages(ctx context.Context) {
	ix := u.s.index.Load()
	unused, err := unusedLayers(u.s.storage)
	if err != nil {
		u.s.log.WithError(err).Warn("failed to look for layers of no image")
	}
	u.forget(ix, unused)
	records := u.measure(ctx, u.s.layout.Images()).
		Plus(u.measure(ctx, u.s.layout.Layers()))
	u.publish(ix, unused, records)
	for _, l := range unused {
		if _, ok := u.layers[l.ID]; !ok {
			u.layers[l.ID] = u.measure(ctx, u.s.layout.LayerFiles(l.ID))
		}
	}
	for _, e := range ix.byID {
		for i, id := range e.layers {
			if _, ok := u.layers[id]; ok {
				continue
			}
			if e.lazy[i] != nil {
				u.layers[id] = rootfs.Size{Inodes: 1}
				continue
			}
			size := u.measure(ctx, e.lowers[i])
			if ctx.Err() != nil {
				return
			}
			u.layers[id] = size
		}
	}
	u.publish(ix, unused, records)
}

// forget drops the layers that were removed.
func (u *usage) forget(ix *index, unused []storage.Layer) {
	used := map[string]bool{}
	for _, l := range unused {
		used[l.ID] = true
	}
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

// publish adds up the sizes; a layer that was not measured yet counts with its recorded size.
func (u *usage) publish(ix *index, unused []storage.Layer, total rootfs.Size) {
	counted := map[string]bool{}
	var left rootfs.Size
	for _, l := range unused {
		left = left.Plus(u.layers[l.ID])
	}
	total = total.Plus(left)
	for _, e := range ix.byID {
		for i, id := range e.layers {
			if counted[id] {
				continue
			}
			counted[id] = true
			size, ok := u.layers[id]
			if !ok {
				size = rootfs.Size{Bytes: e.sizes[i]}
			}
			total = total.Plus(size)
		}
	}
	u.images.Store(&FsUsage{Mountpoint: u.s.layout.Root, Bytes: total.Bytes, Inodes: total.Inodes, At: time.Now()})
	u.unused.Store(left.Bytes)
	known := maps.Clone(u.layers)
	u.known.Store(&known)
}

func (u *usage) measure(ctx context.Context, root string) rootfs.Size {
	return rootfs.Measure(ctx, root, u.s.log)
}
