package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"go.podman.io/storage"
	"golang.org/x/sys/unix"
)

// Corruption is a layer whose files are not those that were pulled.
type Corruption struct {
	Layer string
	// Reason names the file that is missing or differs.
	Reason string
	// Images are the ids and names of the images that use the layer.
	Images []string
}

// Verify checks the files of every layer of every image and returns the corrupt layers by id. With mark, images that
// use one are hidden until they are pulled again; that pull fetches only the corrupt layers. Running containers are not
// affected. It reads all images from disk, at low priority.
func (s *Store) Verify(ctx context.Context, mark bool) ([]Corruption, error) {
	done := make(chan struct{})
	var found map[string]string
	var err error
	s.wg.Go(func() {
		defer close(done)
		found, err = s.verifyAll(ctx, mark)
		if err == nil {
			err = s.verifyLazy(ctx, found, mark)
		}
	})
	<-done
	if err != nil {
		return nil, fmt.Errorf("verify images: %w", err)
	}
	var corruptions []Corruption
	for _, layer := range slices.Sorted(maps.Keys(found)) {
		corruptions = append(corruptions, Corruption{Layer: layer, Reason: found[layer], Images: s.imagesUsing(layer)})
	}
	return corruptions, nil
}

// verifyAfterPowerLoss verifies all layers once if the machine went down while the store was open.
func (s *Store) verifyAfterPowerLoss(ctx context.Context) {
	if !s.integrity.pending() {
		return
	}
	start := time.Now()
	s.log.Info("machine was not shut down cleanly, verifying the layers of all images")
	found, err := s.verifyAll(ctx, true)
	if err == nil {
		err = s.integrity.markVerified()
	}
	log := s.log.WithFields(logrus.Fields{
		"corrupt_layers": len(found), "duration": time.Since(start).Round(time.Millisecond).String(),
	})
	switch {
	case err == nil:
		log.Info("verified the layers of all images")
	case ctx.Err() == nil:
		log.WithError(err).Error("failed to verify the layers of all images, retrying at the next start")
	}
}

// verifyAll verifies the layers of all images, the last pulled first: they are the most likely to have been in memory
// only. It lowers the priority of the calling thread, which ends with the caller's goroutine.
func (s *Store) verifyAll(ctx context.Context, mark bool) (map[string]string, error) {
	runtime.LockOSThread() // never unlocked: the thread keeps its low priority
	lowerPriority()
	layers, err := s.storage.Layers()
	if err != nil {
		return nil, err
	}
	used := s.index.Load().layers()
	slices.SortFunc(layers, func(a, b storage.Layer) int {
		return cmp.Or(b.Created.Compare(a.Created), strings.Compare(a.ID, b.ID))
	})
	found := s.integrity.corruptLayers()
	if found == nil {
		found = map[string]string{}
	}
	for i := range layers {
		id := layers[i].ID
		if _, known := found[id]; known || !used[id] || s.integrity.unverifiable(id) {
			continue
		}
		version := s.integrity.version(id)
		err := s.verifyLayer(ctx, &layers[i])
		var bad corruptError
		switch {
		case errors.As(err, &bad):
			found[id] = bad.text
			if mark {
				err = s.markCorrupt(id, version, bad.text)
			} else {
				err = nil
			}
		}
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

// verifyLayer is verifyFiles for a layer that may be deleted concurrently.
func (s *Store) verifyLayer(ctx context.Context, layer *storage.Layer) error {
	err := s.verifyFiles(ctx, layer)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if _, gone := s.storage.Layer(layer.ID); errors.Is(gone, storage.ErrLayerUnknown) {
		return nil
	}
	return err
}

// markCorrupt records a corrupt layer and removes the images that use it from the index.
func (s *Store) markCorrupt(layer string, version int, reason string) error {
	isNew, err := s.integrity.markCorrupt(layer, version, reason)
	if !isNew {
		return err
	}
	s.log.WithFields(logrus.Fields{"layer": layer, "reason": reason, "images": s.imagesUsing(layer)}).
		Error("layer is corrupt: its images are hidden until they are pulled again")
	return errors.Join(err, s.refresh())
}

// imagesUsing returns the ids and names of the images that use a layer.
func (s *Store) imagesUsing(layer string) []string {
	var out []string
	for _, e := range s.index.Load().all() {
		if slices.Contains(e.layers, layer) {
			out = append(out, strings.Join(append([]string{e.ID}, e.Tags...), " "))
		}
	}
	slices.Sort(out)
	return out
}

// layerInUse reports whether a container has a filesystem of an image with the layer.
func (s *Store) layerInUse(layer string) bool {
	for _, e := range s.index.Load().all() {
		if slices.Contains(e.layers, layer) && len(s.mounts.Users.Of(e.ID)) > 0 {
			return true
		}
	}
	return false
}

// lowerPriority sets the calling thread to the lowest CPU and I/O priority that does not starve. Errors are ignored.
func lowerPriority() {
	const ioprioWhoProcess, bestEffort, lowest = 1, 2 << 13, 7 // ioprio_set(2)
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19)
	_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ioprioWhoProcess, 0, bestEffort|lowest)
}
