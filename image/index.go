package image

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"go.podman.io/image/v5/docker/reference"

	"github.com/podd-project/podd/image/layers"
	"github.com/podd-project/podd/image/registry"
)

// index is an immutable snapshot of the store's images, for readers.
type index struct {
	// images are sorted by creation time, then id.
	images []*Image
	byID   map[string]*entry
	// byName has name:tag and name@digest, of both the manifest that was pulled and the one for this platform.
	byName map[string]*entry
	// ids are sorted, for look-ups by prefix.
	ids []string
	// corrupt holds the images that are hidden, see splitCorrupt; its own corrupt is nil.
	corrupt *index
}

// layers returns the ids of all layers, those of corrupt images included.
func (ix *index) layers() map[string]bool {
	used := map[string]bool{}
	for _, e := range ix.all() {
		for _, id := range e.layers {
			used[id] = true
		}
	}
	return used
}

// hasAll reports whether all ids are of intact images.
func (ix *index) hasAll(ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return ix.byID[id] == nil })
}

// withLayer returns the images that have a layer, sorted by id.
func (ix *index) withLayer(layer string) []*entry {
	found := slices.DeleteFunc(ix.all(), func(e *entry) bool { return !slices.Contains(e.layers, layer) })
	slices.SortFunc(found, func(a, b *entry) int { return strings.Compare(a.ID, b.ID) })
	return found
}

// all returns all images, corrupt ones included, in no particular order.
func (ix *index) all() []*entry {
	return slices.AppendSeq(slices.Collect(maps.Values(ix.byID)), maps.Values(ix.corrupt.byID))
}

// entry is an image with the fields that only the store needs.
type entry struct {
	*Image
	// layers are the image's layer ids, top first.
	layers []string
	// lowers are the layers' directories, sizes their recorded uncompressed sizes; both in the order of layers.
	lowers []string
	sizes  []uint64
	// lazy are the layers in the additional layer store, nil for others, in the order of layers.
	lazy []*layers.Lazy
	// names and digests are as storage has them, to detect changes.
	names, digests []string
	// refused is why no container can be made of the image; nil if one can.
	refused error
	// contradicts is why the layers are not those of the id; nil if they are.
	contradicts error
}

// splitCorrupt separates the images that have a corrupt layer, or other layers than their id says.
func splitCorrupt(entries []*entry, layers map[string]string) (intact, corrupt []*entry) {
	for _, e := range entries {
		isCorrupt := slices.ContainsFunc(e.layers, func(layer string) bool { _, ok := layers[layer]; return ok })
		if isCorrupt || e.contradicts != nil {
			corrupt = append(corrupt, e)
		} else {
			intact = append(intact, e)
		}
	}
	return intact, corrupt
}

// newIndex indexes entries; if two have the same name the later wins.
func newIndex(entries []*entry) *index {
	ix := &index{byID: make(map[string]*entry, len(entries)), byName: make(map[string]*entry, 2*len(entries))}
	slices.SortFunc(entries, func(a, b *entry) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
	for _, e := range entries {
		ix.images = append(ix.images, e.Image)
		ix.ids = append(ix.ids, e.ID)
		ix.byID[e.ID] = e
		for _, name := range instanceNames(e) {
			ix.byName[name] = e
		}
	}
	for _, e := range entries { // the name of an image takes precedence over that of an instance
		for _, name := range slices.Concat(e.Tags, e.Digests) {
			ix.byName[name] = e
		}
	}
	slices.Sort(ix.ids)
	return ix
}

// instanceNames returns the image's repositories with the digest of every manifest stored for it: for a multi-platform
// image both the list and the manifest for this platform.
func instanceNames(e *entry) []string {
	var out []string
	for _, name := range slices.Concat(e.Tags, e.Digests) {
		repo := registry.Repository(name)
		for _, digest := range e.digests {
			out = append(out, repo+"@"+digest)
		}
	}
	return out
}

// id finds an image by its id or an unambiguous prefix of it; nil if there is none.
func (ix *index) id(hex string) (*entry, error) {
	if e, ok := ix.byID[hex]; ok {
		return e, nil
	}
	i, _ := slices.BinarySearch(ix.ids, hex)
	if i == len(ix.ids) || !strings.HasPrefix(ix.ids[i], hex) {
		return nil, nil
	}
	if i+1 < len(ix.ids) && strings.HasPrefix(ix.ids[i+1], hex) {
		return nil, fmt.Errorf("image id %q is a prefix of several ids: %w", hex, errdefs.ErrInvalidArgument)
	}
	return ix.byID[ix.ids[i]], nil
}

// name finds an image by the first of refs that names one; nil if none does.
func (ix *index) name(refs []reference.Named) *entry {
	for _, ref := range refs {
		if e, ok := ix.byName[ref.String()]; ok {
			return e
		}
	}
	return nil
}
