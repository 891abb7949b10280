package image

import (
	"context"
	"os"
	"time"

	"go.podman.io/storage"

	"github.com/podd-project/podd/image/registry"
	"github.com/podd-project/podd/image/worker"
)

// refreshInterval is the interval of checks whether another program changed the store.
const refreshInterval = 10 * time.Second

// refresh publishes a new index. It waits for storage's locks, so only writers and the background goroutine call it.
func (s *Store) refresh() error {
	s.refreshing.Lock() // two at a time could publish in the wrong order
	defer s.refreshing.Unlock()
	stamp := imagesStamp(s.layout)
	c := catalog{storage: s.storage, layout: s.layout, log: s.log, old: s.index.Load()}
	c.pinned = func(img *storage.Image) bool {
		return s.preloaded.has(img.ID) || matchesGlob(img.Names, s.cfg().Pinned)
	}
	entries, err := c.read()
	if err != nil {
		return err
	}
	intact, corrupt := splitCorrupt(entries, s.integrity.Corrupt())
	ix := newIndex(intact)
	ix.corrupt = newIndex(corrupt)
	s.index.Store(ix)
	s.stamp.Store(&stamp)
	s.usage.request()
	return nil
}

// imagesStamp returns the stamp of the file that storage replaces at every change of its list of images.
func imagesStamp(l worker.Layout) string {
	info, err := os.Stat(l.ImageList())
	if err != nil {
		return ""
	}
	return registry.Stamp(info)
}

// watchStorage refreshes the index when another program has changed storage, and removes hidden images, and layers of
// no image, until ctx ends.
func (s *Store) watchStorage(ctx context.Context) {
	ticker := time.NewTicker(refreshInterval)
	defer ticker.Stop()
	unused := time.NewTicker(unusedInterval)
	defer unused.Stop()
	s.removeOldUnused()
	for {
		select {
		case <-ctx.Done():
			return
		case <-unused.C:
			s.removeOldUnused()
		case <-ticker.C:
			s.refreshIfChanged()
			s.removeHidden(ctx)
		}
	}
}

func (s *Store) refreshIfChanged() {
	if *s.stamp.Load() == imagesStamp(s.layout) {
		return
	}
	if err := s.refresh(); err != nil {
		s.log.WithError(err).Warn("failed to reread the changed image store")
	}
}
