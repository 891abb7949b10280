package worker

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/opencontainers/go-digest"
	"go.podman.io/storage"
	"go.podman.io/storage/pkg/chunked/toc"

	"github.com/podd-project/podd/image/layers"
)

// maxLookUps bounds the layers of an image that are looked up in the additional layer store: the request must fit in
// child.MaxMessage. Further ones are fetched.
const maxLookUps = 150

// LookUp is a question of a pull's process to podd: which layers does the additional layer store have?
type LookUp struct {
	// Manifest is the digest of the image's manifest, which the signature policy has accepted.
	Manifest digest.Digest
	Layers   []layers.Wanted
}

// Found is podd's answer, one line on the stdin of that process: the result for each layer of the
// request, nil for nothing.
type Found struct {
	Found []*layers.Lazy
}

// readReplies passes podd's answers on until the end of the input.
func readReplies(from *json.Decoder, to chan<- Found) {
	for {
		var r Found
		if err := from.Decode(&r); err != nil {
			return
		}
		to <- r
	}
}

// send asks podd, from a pull's process.
func (r LookUp) send(ctx context.Context, out *reporter, replies <-chan Found) (Found, error) {
	if err := out.send(pullReport{Kind: reportLookUp, LookUp: &r}); err != nil {
		return Found{}, err
	}
	select {
	case reply := <-replies:
		return reply, nil
	case <-ctx.Done():
		return Found{}, context.Cause(ctx)
	}
}

// lazyPlan decides, in a pull's process, which layers of an image are fetched.
type lazyPlan struct {
	store storage.Store
	// chain gets the ids of the layers, and Lazy for those that are not fetched.
	chain []layers.Layer
	// corrupt are ids of layers: an image that would have one is fetched as a whole.
	corrupt []string
	// most bounds the sizes of all layers together, in bytes: an image with more is fetched, which fails.
	most int64
}

// lazy returns the ids of the layers that are not fetched.
func (p *lazyPlan) lazy() (ids []string) {
	for _, l := range p.chain {
		if l.Lazy != nil {
			ids = append(ids, l.ID)
		}
	}
	return ids
}

// imageID returns the id of an image with this config, as containers/image computes it: not the config's digest if
// layers are lazy, whose tars were not compared with it, so that no other image gets them.
func (p *lazyPlan) imageID(config string) string {
	if len(p.lazy()) == 0 {
		return config
	}
	input := "@With TOC:" + config + "|"
	for _, l := range p.chain {
		if l.Lazy != nil {
			input += tocOf(l).String()
		}
		input += "|"
	}
	return digest.Canonical.FromString(input).Encoded()
}

// make decides by what lookUp finds for the image with that manifest, nil for no additional layer store.
func (p *lazyPlan) make(
	ctx context.Context, lookUp func(context.Context, LookUp) (Found, error), of digest.Digest,
) error {
	if lookUp == nil || p.isTooLarge() {
		return nil
	}
	wanted, at := p.wanted()
	if p.isCorrupt() {
		return nil
	}
	found := map[int]*layers.Lazy{}
	if len(wanted) > 0 {
		reply, err := lookUp(ctx, LookUp{Manifest: of, Layers: wanted[:min(len(wanted), maxLookUps)]})
		if err != nil {
			return err
		}
		for i, l := range reply.Found {
			found[at[i]] = l
		}
	}
	p.assign(func(i int, l *layers.Layer) *layers.Lazy {
		if stored, same := p.stored(l); stored != nil || !same {
			return stored
		}
		return found[i]
	})
	p.isCorrupt()
	return nil
}

// isTooLarge reports whether the layers have more bytes than an image may have.
func (p *lazyPlan) isTooLarge() bool {
	left := p.most
	for _, l := range p.chain { // of sizes that are not negative
		if l.Blob.Size > left {
			return true
		}
		left -= l.Blob.Size
	}
	return false
}

// isCorrupt reports whether the image would have a corrupt layer. Then none of its layers is lazy.
func (p *lazyPlan) isCorrupt() bool {
	if !slices.ContainsFunc(p.chain, func(l layers.Layer) bool { return slices.Contains(p.corrupt, l.ID) }) {
		return false
	}
	p.assign(func(int, *layers.Layer) *layers.Lazy { return nil })
	return true
}

// wanted returns the layers to look up, with their indexes: those that may be lazy and are not stored so, on the layers
// that they would have below them then.
func (p *lazyPlan) wanted() (out []layers.Wanted, at []int) {
	p.assign(func(i int, l *layers.Layer) *layers.Lazy {
		if stored, same := p.stored(l); stored != nil || !same {
			return stored
		}
		at = append(at, i)
		out = append(out, layers.Wanted{
			Lazy: layers.Lazy{TOC: tocOf(*l)}, Blob: l.Blob.Digest, Size: l.Blob.Size, DiffID: l.DiffID,
		})
		return &layers.Lazy{}
	})
	return out, at
}

// stored returns the record of a layer that is lazy on its parent, nil for nothing. Same is false if it was stored
// for an image that gives its tar another digest.
func (p *lazyPlan) stored(l *layers.Layer) (lazy *layers.Lazy, same bool) {
	stored, err := p.store.Layer(layers.LazyID(l.Parent, tocOf(*l)))
	if err != nil {
		return nil, true
	}
	if layers.ExpectedDiffID(stored) != l.DiffID {
		return nil, false
	}
	return &layers.Lazy{TOC: tocOf(*l)}, true // not stored again
}

// assign gives the layers their ids. Lazy is what choose returns of a layer that may be, with its parent.
func (p *lazyPlan) assign(choose func(int, *layers.Layer) *layers.Lazy) {
	parent := ""
	for i := range p.chain {
		l := &p.chain[i]
		l.Parent, l.Lazy = parent, nil
		if p.mayBeLazy(l) {
			l.Lazy = choose(i, l)
		}
		if l.Lazy != nil {
			l.ID = layers.LazyID(parent, tocOf(*l))
		} else {
			l.ID = layers.ChainID(parent, l.DiffID)
		}
		parent = l.ID
	}
}

// mayBeLazy reports whether a layer has a table of contents and its content is not stored. Overlay refuses the same
// directory twice, so no other layer of the image may have that table.
func (p *lazyPlan) mayBeLazy(l *layers.Layer) bool {
	of := tocOf(*l)
	if of == "" {
		return false
	}
	for i := range p.chain {
		if other := &p.chain[i]; other != l && tocOf(*other) == of {
			return false
		}
	}
	if same, err := p.store.LayersByCompressedDigest(l.Blob.Digest); err == nil && len(same) > 0 {
		return false
	}
	same, err := p.store.LayersByUncompressedDigest(l.DiffID)
	return err != nil || len(same) == 0
}

// tocOf returns the digest of a layer's table of contents, "" if it has none. An encrypted layer is always fetched.
func tocOf(l layers.Layer) digest.Digest {
	d, err := toc.GetTOCDigest(l.Blob.Annotations)
	if err != nil || d == nil || d.Algorithm() != digest.Canonical || layers.IsEncrypted(l.Blob.MediaType) {
		return ""
	}
	return *d
}
