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

// Damage is a layer that does not have the content that was pulled.
type Corruption struct {
	Layer string
	// Reason says which file is missing or differs.
	Reason string
	// Images are the ids and names of the images that use it.
	Images []string
}

// Verify looks at the files of every layer of every image, and returns those layers that have lost content, by id. With
// mark, the images that use one are not listed any more, until they are pulled again: that fetches the damaged layers only.
// Containers of theirs run on. It reads all images from disk, at low priority.
func (s *Store) Verify(ctx context.Context, mark bool) ([]Corruption, error) {
	done := make(chan struct{})
	var found map[string]string
	var err error
	s.wg.Go(func() {
		defer close(done)
		found, err = s.verifyAll(ctx, mark)
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

// verifyAfterPowerLoss looks at all layers once, if the kernel did not end in order while the store was open.
func (s *Store) verifyAfterPowerLoss(ctx context.Context) {
	if !s.integrity.pending() {
		return
	}
	start := time.Now()
	s.log.Info("the machine was not shut down in order, verifying the layers of all images")
	found, err := s.verifyAll(ctx, true)
	if err == nil {
		err = s.integrity.markVerified()
	}
	log := s.log.WithFields(logrus.Fields{"damaged": len(found), "seconds": time.Since(start).Round(time.Millisecond).Seconds()})
	switch {
	case err == nil:
		log.Info("verified the layers of all images")
	case ctx.Err() == nil:
		log.WithError(err).Error("cannot verify the layers of all images, it is tried again at the next start")
	}
}

// verifyAll verifies the layers of all images, those first that were pulled last: they are the likeliest to have been in
// memory only. The thread that does it gives way to everything else, and ends with the caller's goroutine.
func (s *Store) verifyAll(ctx context.Context, mark bool) (map[string]string, error) {
	runtime.LockOSThread() // and never unlocked
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

// verifyLayer is verifyFiles for a layer that may be deleted meanwhile.
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

// markCorrupt takes the images that use a layer out of the index.
func (s *Store) markCorrupt(layer string, version int, reason string) error {
	isNew, err := s.integrity.markCorrupt(layer, version, reason)
	if !isNew {
		return err
	}
	s.log.WithFields(logrus.Fields{"layer": layer, "reason": reason, "images": s.imagesUsing(layer)}).
		Error("a layer has lost content: its images are not listed until they are pulled again")
	return errors.Join(err, s.refresh())
}

// imagesUsing are the ids and names of the images that use a layer.
func (s *Store) imagesUsing(layer string) []string {
	ix := s.index.Load()
	var out []string
	for _, e := range slices.Concat(slices.Collect(maps.Values(ix.byID)), slices.Collect(maps.Values(ix.corrupt.byID))) {
		if slices.Contains(e.layers, layer) {
			out = append(out, strings.Join(append([]string{e.ID}, e.Tags...), " "))
		}
	}
	slices.Sort(out)
	return out
}

// layerInUse says whether a container has a filesystem of an image with the layer.
func (s *Store) layerInUse(layer string) bool {
	ix := s.index.Load()
	for _, e := range slices.Concat(slices.Collect(maps.Values(ix.byID)), slices.Collect(maps.Values(ix.corrupt.byID))) {
		if slices.Contains(e.layers, layer) && len(s.refs.users(e.ID)) > 0 {
			return true
		}
	}
	return false
}

// lowerPriority lowers the priority of this thread, of CPU and disk, as far as it goes without starving. It is no matter if it
// cannot be.
func lowerPriority() {
	const ioprioWhoProcess, bestEffort, lowest = 1, 2 << 13, 7 // ioprio_set(2)
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19)
	_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ioprioWhoProcess, 0, bestEffort|lowest)
}
