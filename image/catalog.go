package image

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sirupsen/logrus"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/storage"

	"github.com/podd-project/podd/image/layers"
	"github.com/podd-project/podd/image/worker"
)

// catalog reads the records of images in storage.
type catalog struct {
	storage storage.Store
	layout  worker.Layout
	log     logrus.FieldLogger
	// old has the entries of images that may not have changed.
	old    *index
	pinned func(*storage.Image) bool
}

// read returns an entry for each image that can be read. It waits for storage's locks.
func (c *catalog) read() ([]*entry, error) {
	images, err := c.storage.Images()
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	var entries []*entry
	var layers layerMap
	for i := range images {
		if e := c.reuse(&images[i]); e != nil {
			entries = append(entries, e)
			continue
		}
		if layers == nil {
			if layers, err = c.layerMap(); err != nil {
				return nil, err
			}
		}
		e, err := c.load(&images[i], layers)
		if err != nil {
			// One unreadable image must not hide the others. Not listed, it will be pulled again.
			c.log.WithError(err).WithField("image", images[i].ID).Warn("failed to read image, not listing it")
			continue
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// reuse returns the entry of img in the old index, if it has not changed.
func (c *catalog) reuse(img *storage.Image) *entry {
	e, ok := c.old.byID[img.ID]
	if !ok {
		e, ok = c.old.corrupt.byID[img.ID]
	}
	if !ok || !slices.Equal(e.names, img.Names) || !slices.Equal(e.digests, digests(img)) || e.Pinned != c.pinned(img) {
		return nil
	}
	return e
}

// layerMap has layers by id.
type layerMap map[string]*storage.Layer

func (c *catalog) layerMap() (layerMap, error) {
	layers, err := c.storage.Layers()
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
func (c *catalog) load(img *storage.Image, layers layerMap) (*entry, error) {
	blob, err := worker.StoredBlob(c.storage, img.ID, storage.ImageDigestBigDataKey)
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
	config, err := worker.StoredConfig(c.storage, img.ID, man)
	if err != nil {
		return nil, err
	}
	e := &entry{
		Image: &Image{
			ID: img.ID, Config: config.Config, Annotations: worker.Annotations(man),
			Created: img.Created, Pinned: c.pinned(img),
		},
		names:   slices.Clone(img.Names),
		digests: digests(img),
	}
	if e.refused = worker.CheckConfig(&config.Config); e.refused != nil { // another program has stored it
		c.log.WithError(e.refused).WithField("image", img.ID).Warn("image cannot be used, only be listed and removed")
		e.Config = v1.ImageConfig{}
	}
	if config.Created != nil {
		e.Created = *config.Created
	}
	e.Tags, e.Digests = splitNames(img.Names)
	var chain []*storage.Layer
	for id := img.TopLayer; id != ""; {
		layer, ok := layers[id]
		if !ok || len(e.layers) > len(layers) {
			return nil, fmt.Errorf("layer %s is missing", id)
		}
		chain = append(chain, layer)
		e.layers = append(e.layers, id)
		e.lowers = append(e.lowers, c.layout.LayerFiles(id))
		e.sizes = append(e.sizes, uint64(max(layer.UncompressedSize, 0)))
		e.Size += e.sizes[len(e.sizes)-1]
		lazy, err := readLazy(layer, e.lowers[len(e.lowers)-1])
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", id, err)
		}
		e.lazy = append(e.lazy, lazy)
		id = layer.Parent
	}
	if e.contradicts = worker.CheckChain(config, chain); e.contradicts != nil { // an older podd has stored it
		c.log.WithError(e.contradicts).WithField("image", img.ID).
			Error("image does not have the layers of its id: it is hidden, and removed when no container uses it")
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

// readLazy returns the record of a layer in the additional layer store, in place of its files in dir. Nil for other
// layers.
func readLazy(l *storage.Layer, dir string) (*layers.Lazy, error) {
	if l.TOCDigest == "" || l.UncompressedDigest != "" {
		return nil, nil
	}
	return layers.ReadLazy(dir)
}
