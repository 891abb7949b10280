package image

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.podman.io/storage"
)

// unusedAge is the age from which layers of no image are removed. A failed pull leaves them for the next attempt, which
// the kubelet makes within five minutes.
const unusedAge = time.Hour

// unusedInterval is how often such layers are looked for.
const unusedInterval = 10 * time.Minute

// RemoveUnusedLayers deletes the layers of no image, which failed pulls have left. It does nothing while a pull is in
// progress, which may be about to use them.
func (s *Store) RemoveUnusedLayers() error { return s.removeUnused(time.Now(), 0) }

// removeUnused deletes the layers of no image that were stored before a time, unless more pulls are in progress than
// those of the caller.
func (s *Store) removeUnused(before time.Time, pulls int) error {
	unused, err := unusedLayers(s.storage)
	if err != nil || len(unused) == 0 {
		return err
	}
	removed := 0
	for _, l := range unused {
		if len(s.pulls.list()) > pulls {
			break
		}
		if l.Created.After(before) {
			continue
		}
		err := s.release(func() error { return s.storage.DeleteLayer(l.ID) })
		switch {
		case err == nil:
			removed++
		case errors.Is(err, storage.ErrLayerHasChildren), errors.Is(err, storage.ErrLayerUsedByContainer),
			errors.Is(err, storage.ErrLayerUnknown): // a newer layer, another program, or another removal
		default:
			return fmt.Errorf("delete layer %s of no image: %w", l.ID, err)
		}
	}
	if removed > 0 {
		s.log.WithField("layers", removed).Info("removed layers that failed pulls have left")
		s.usage.request()
	}
	return nil
}

// unusedLayers returns the layers that no image has, each before its parent.
func unusedLayers(from storage.Store) ([]storage.Layer, error) {
	stored, err := from.Layers()
	if err != nil {
		return nil, fmt.Errorf("list layers: %w", err)
	}
	images, err := from.Images()
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	parents := map[string]string{}
	for _, l := range stored {
		parents[l.ID] = l.Parent
	}
	used := map[string]bool{}
	for _, img := range images {
		for id := img.TopLayer; id != "" && !used[id]; id = parents[id] {
			used[id] = true
		}
	}
	unused := slices.DeleteFunc(stored, func(l storage.Layer) bool { return used[l.ID] })
	depth := map[string]int{}
	for _, l := range unused {
		for id := l.ID; id != ""; id = parents[id] {
			depth[l.ID]++
		}
	}
	slices.SortFunc(unused, func(a, b storage.Layer) int { return depth[b.ID] - depth[a.ID] })
	return unused, nil
}

// removeOldUnused removes old layers of no image: the kubelet only collects images.
func (s *Store) removeOldUnused() {
	if err := s.removeUnused(time.Now().Add(-unusedAge), 0); err != nil {
		s.log.WithError(err).Warn("failed to remove layers that failed pulls have left")
	}
}
