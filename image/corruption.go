package image

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"go.podman.io/storage"

	"github.com/podd-project/podd/image/integrity"
	"github.com/podd-project/podd/image/layers"
	"github.com/podd-project/podd/image/worker"
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
		found, err = s.integrity.Verify(ctx, mark)
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

// openIntegrity returns the record of corrupt layers, and what finds and replaces them.
func (s *Store) openIntegrity(bootID string) *integrity.Checker {
	checker, err := integrity.New(integrity.Options{
		Record: s.layout.Integrity(), BootID: bootID, Storage: s.storage, Log: s.log,
		Files: s.layout.LayerFiles, Metadata: s.layout.Layers(),
		Layers: func() map[string]bool { return s.index.Load().layers() },
		InUse:  s.layerInUse, ImagesUsing: s.imagesUsing, Changed: s.refresh,
	})
	if err != nil {
		s.log.WithError(err).Warn("failed to record that the image store is open: a power loss will not be detected")
	}
	return checker
}

// repair replaces the corrupt layers of a copied image by those that the pull's process has left in dir.
func (s *Store) repair(ctx context.Context, img *storage.Image, dir string) error {
	corrupt := s.integrity.Corrupt()
	if len(corrupt) == 0 {
		return nil
	}
	chain, err := worker.ChainOf(s.storage, img)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(chain, func(id string) bool { _, ok := corrupt[id]; return ok }) {
		return nil
	}
	var fetched []integrity.Fetched
	for _, id := range chain {
		files, tarSplit := layers.Unpacked(filepath.Join(dir, worker.RefetchedPrefix+id))
		fetched = append(fetched, integrity.Fetched{Layer: id, Files: files, TarSplit: tarSplit})
	}
	return s.integrity.Repair(ctx, fetched)
}

// imagesUsing returns the ids and names of the images that use a layer.
func (s *Store) imagesUsing(layer string) []string {
	var out []string
	for _, e := range s.index.Load().withLayer(layer) {
		out = append(out, strings.Join(append([]string{e.ID}, e.Tags...), " "))
	}
	return out
}

// layerInUse reports whether a container has a filesystem of an image with the layer.
func (s *Store) layerInUse(layer string) bool {
	return slices.ContainsFunc(s.index.Load().withLayer(layer), func(e *entry) bool {
		return len(s.mounts.Users.Of(e.ID)) > 0
	})
}
