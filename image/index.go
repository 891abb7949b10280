package image

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"go.podman.io/image/v5/docker/reference"
)

// index is what the store holds at one moment, for readers. Never changed after it was published.
type index struct {
	// images, oldest first; ties by id.
	images []*Image
	byID   map[string]*entry
	// byName finds name:tag and name@digest, both of the manifest that was asked for and of the one for this platform.
	byName map[string]*entry
	// ids, sorted, for prefixes.
	ids []string
	// damaged are the images that have lost content; nil in itself.
	corrupt *index
}

// layers are the ids of all layers, those of damaged images too.
func (ix *index) layers() map[string]bool {
	used := map[string]bool{}
	for _, part := range []*index{ix, ix.corrupt} {
		for _, e := range part.byID {
			for _, id := range e.layers {
				used[id] = true
			}
		}
	}
	return used
}

// entry is an image with what only the store needs to know of it.
type entry struct {
	*Image
	// layers are the image's layer ids, the top one first.
	layers []string
	// lowers are the layers' directories, sizes what their records say they unpack to; both as layers.
	lowers []string
	sizes  []uint64
	// names as storage has them, to see that they changed.
	names, digests []string
}

// newIndex arranges entries for look-up; when two claim a name the later wins.
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
	for _, e := range entries { // a name that was asked for counts more than one of an instance
		for _, name := range slices.Concat(e.Tags, e.Digests) {
			ix.byName[name] = e
		}
	}
	slices.Sort(ix.ids)
	return ix
}

// instanceNames are the image's repositories with the digest of every manifest it is stored with: of a
// multi-platform image both the list and the manifest for this platform.
func instanceNames(e *entry) []string {
	var out []string
	for _, name := range slices.Concat(e.Tags, e.Digests) {
		repo := repository(name)
		for _, digest := range e.digests {
			out = append(out, repo+"@"+digest)
		}
	}
	return out
}

// repository is the name without tag or digest. The name is one that storage keeps: complete and normalised.
func repository(name string) string {
	if repo, _, ok := strings.Cut(name, "@"); ok {
		return repo
	}
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		return name[:i]
	}
	return name
}

// id finds an image by its id or an unambiguous beginning of it; nil when there is none.
func (ix *index) id(hex string) (*entry, error) {
	if e, ok := ix.byID[hex]; ok {
		return e, nil
	}
	i, _ := slices.BinarySearch(ix.ids, hex)
	if i == len(ix.ids) || !strings.HasPrefix(ix.ids[i], hex) {
		return nil, nil
	}
	if i+1 < len(ix.ids) && strings.HasPrefix(ix.ids[i+1], hex) {
		return nil, fmt.Errorf("image id %q is the beginning of several ids: %w", hex, errdefs.ErrInvalidArgument)
	}
	return ix.byID[ix.ids[i]], nil
}

// name finds an image by the first of refs that names one; nil when none does.
func (ix *index) name(refs []reference.Named) *entry {
	for _, ref := range refs {
		if e, ok := ix.byName[ref.String()]; ok {
			return e
		}
	}
	return nil
}
