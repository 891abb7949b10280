package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/manifest"
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
	stamp := s.imagesStamp()
	images, err := s.storage.Images()
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	old := s.index.Load()
	var entries []*entry
	var layers layerMap
	for i := range images {
		if e := s.reuse(old, &images[i]); e != nil {
			entries = append(entries, e)
			continue
		}
		if layers == nil {
			if layers, err = s.layerMap(); err != nil {
				return err
			}
		}
		e, err := s.load(&images[i], layers)
		if err != nil {
			// One unreadable image must not hide the others. Not listed, it will be pulled again.
			s.log.WithError(err).WithField("image", images[i].ID).Warn("failed to read image, not listing it")
			continue
		}
		entries = append(entries, e)
	}
	intact, corrupt := splitCorrupt(entries, s.integrity.Corrupt())
	ix := newIndex(intact)
	ix.corrupt = newIndex(corrupt)
	s.index.Store(ix)
	s.stamp.Store(&stamp)
	s.usage.request()
	return nil
}

// reuse returns the entry of img in the previous index, if it has not changed.
func (s *Store) reuse(old *index, img *storage.Image) *entry {
	e, ok := old.byID[img.ID]
	if !ok {
		e, ok = old.corrupt.byID[img.ID]
	}
	if !ok || !slices.Equal(e.names, img.Names) || !slices.Equal(e.digests, digests(img)) || e.Pinned != s.pinned(img) {
		return nil
	}
	return e
}

// layerMap has layers by id.
type layerMap map[string]*storage.Layer

func (s *Store) layerMap() (layerMap, error) {
	layers, err := s.storage.Layers()
	if err != nil {
		return nil, fmt.Errorf("list layers: %w", err)
	}
	m := make(layerMap, len(layers))
	for i := range layers {
		m[layers[i].ID] = &layers[i]
	}
	return m, nil
}

// load reads an image's config and annotations and walks its layers.
func (s *Store) load(img *storage.Image, layers layerMap) (*entry, error) {
	blob, err := worker.StoredBlob(s.storage, img.ID, storage.ImageDigestBigDataKey)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	if want := img.BigDataDigests[storage.ImageDigestBigDataKey]; want != "" && digest.FromBytes(blob) != want {
		return nil, fmt.Errorf("the stored manifest does not have the digest %s", want)
	}
	man, err := manifest.FromBlob(blob, manifest.GuessMIMEType(blob))
	if err != nil {
		return nil, fmt.Errorf("parse manifest: %w", err)
	}
	config, err := worker.StoredConfig(s.storage, img.ID, man)
	if err != nil {
		return nil, err
	}
	e := &entry{
		Image: &Image{
			ID: img.ID, Config: config.Config, Annotations: worker.Annotations(man),
			Created: img.Created, Pinned: s.pinned(img),
		},
		names:   slices.Clone(img.Names),
		digests: digests(img),
	}
	if e.refused = worker.CheckConfig(&config.Config); e.refused != nil { // another program has stored it
		s.log.WithError(e.refused).WithField("image", img.ID).Warn("image cannot be used, only be listed and removed")
		e.Config = v1.ImageConfig{}
	}
	if config.Created != nil {
		e.Created = *config.Created
	}
	e.Tags, e.Digests = splitNames(img.Names)
	for id := img.TopLayer; id != ""; {
		layer, ok := layers[id]
		if !ok || len(e.layers) > len(layers) {
			return nil, fmt.Errorf("layer %s is missing", id)
		}
		e.layers = append(e.layers, id)
		e.lowers = append(e.lowers, s.layout.LayerFiles(id))
		e.sizes = append(e.sizes, uint64(max(layer.UncompressedSize, 0)))
		e.Size += e.sizes[len(e.sizes)-1]
		lazy, err := s.readLazy(layer)
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", id, err)
		}
		e.lazy = append(e.lazy, lazy)
		id = layer.Parent
	}
	return e, nil
}

// digests returns those of the image's manifests: the one for this platform and the list that it came from.
func digests(img *storage.Image) []string {
	var out []string
	for _, d := range img.Digests {
		out = append(out, d.String())
	}
	slices.Sort(out)
	return out
}

// splitNames separates an image's names into those with a tag and those with a digest.
func splitNames(names []string) (tags, digests []string) {
	for _, name := range names {
		if strings.Contains(name, "@") {
			digests = append(digests, name)
		} else {
			tags = append(tags, name)
		}
	}
	slices.Sort(tags)
	slices.Sort(digests)
	return tags, digests
}

// imagesStamp returns the stamp of the file that storage replaces at every change of its list of images.
func (s *Store) imagesStamp() string {
	info, err := os.Stat(filepath.Join(s.layout.Images(), "images.json"))
	if err != nil {
		return ""
	}
	return registry.Stamp(info)
}

// watchStorage refreshes the index when another program has changed storage, and removes images that were pulled again
// as a whole, until ctx ends.
func (s *Store) watchStorage(ctx context.Context) {
	ticker := time.NewTicker(refreshInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.refreshIfChanged()
			s.removeReplaced(ctx)
		}
	}
}

func (s *Store) refreshIfChanged() {
	if *s.stamp.Load() == s.imagesStamp() {
		return
	}
	if err := s.refresh(); err != nil {
		s.log.WithError(err).Warn("failed to reread the changed image store")
	}
}
