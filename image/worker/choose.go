package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	containersimage "go.podman.io/image/v5/image"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/types"
)

const (
	// maxLevels bounds how deep lists are nested, maxRead how many manifests of lists are read for one image.
	maxLevels = 3
	maxRead   = 16
	// maxPlatforms bounds how many platforms of a list an error names.
	maxPlatforms = 16
)

// zstdKey is the annotation of an image in a list whose layers are compressed with zstd.
const zstdKey = "io.github.containers.compression.zstd"

// A list may have several images for one platform, distinguished only by annotations. A pull selects one by its
// annotations with the keys that the node's configuration names. The other annotations must not distinguish pulls,
// because a kubelet sends all of a pod's.

// chooseInstance reads the manifest that the source's reference names. Of a list it chooses the image that fits this
// node best, of those that have all annotations of the variant, or are in a list that has; of all if there is none, as
// a pod's other containers have images without variants.
func chooseInstance(ctx context.Context, source types.ImageSource, variant map[string]string) (*instance, error) {
	top, err := readManifest(ctx, source, nil)
	if err != nil {
		return nil, err
	}
	if !manifest.MIMETypeIsMultiImage(top.mime) {
		return newInstance(source, top, nil)
	}
	c := chooser{source: source}
	chosen, err := c.chooseAny(ctx, top, variant)
	isVariant := len(variant) > 0 && chosen != nil
	if len(variant) > 0 && chosen == nil && err == nil {
		c = chooser{source: source}
		chosen, err = c.chooseAny(ctx, top, nil)
	}
	switch {
	case err != nil:
		return nil, err
	case chosen == nil:
		return nil, platformError(c.platforms)
	}
	chosen.top, chosen.isVariant = top.raw, isVariant
	return chosen, nil
}

type rawManifest struct {
	raw  []byte
	mime string
}

// readManifest reads a manifest of the source, the one that its reference names without a digest, and verifies its
// digest. Servers of static files send other types than the manifest's.
func readManifest(ctx context.Context, source types.ImageSource, of *digest.Digest) (rawManifest, error) {
	raw, mime, err := containersimage.UnparsedInstance(source, of).Manifest(ctx)
	if err == nil && !slices.Contains(manifest.DefaultRequestedManifestMIMETypes, mime) {
		mime = manifest.GuessMIMEType(raw)
	}
	return rawManifest{raw, mime}, err
}

// chooser finds the image of a list that fits this node best.
type chooser struct {
	source types.ImageSource
	// read are the manifests that were read from lists, platforms those in the lists.
	read      []digest.Digest
	platforms []string
	// artifact is one that may be for this node, and is for it by its platform if isFor is set.
	artifact *instance
	isFor    bool
}

// chooseAny returns the image of a list, or an artifact that may be for this node, nil if neither is.
func (c *chooser) chooseAny(ctx context.Context, list rawManifest, wanted map[string]string) (*instance, error) {
	chosen, err := c.choose(ctx, list, wanted, 1)
	if chosen == nil && err == nil && (c.isFor || len(c.platforms) == 0) {
		return c.artifact, nil
	}
	return chosen, err
}

// choose returns the image of a list at a level of nesting, nil if no image fits. Wanted are the annotations of the
// variant that the lists above do not have.
func (c *chooser) choose(
	ctx context.Context, list rawManifest, wanted map[string]string, level int,
) (*instance, error) {
	entries, err := c.entries(list)
	if err != nil {
		return nil, err
	}
	for _, d := range entries {
		inner := wanted
		if annotated(d.Annotations, wanted) {
			inner = nil
		}
		if len(inner) > 0 && !manifest.MIMETypeIsMultiImage(d.MediaType) || slices.Contains(c.read, d.Digest) {
			continue
		}
		if chosen, err := c.follow(ctx, d, inner, level); chosen != nil || err != nil {
			return chosen, err
		}
	}
	return nil, nil
}

// follow returns the image of an entry of a list, which may be a list too, nil if it has none for this node.
func (c *chooser) follow(
	ctx context.Context, entry candidate, wanted map[string]string, level int,
) (*instance, error) {
	if err := checkDigest(entry.Digest); err != nil {
		return nil, err
	}
	if c.read = append(c.read, entry.Digest); len(c.read) > maxRead {
		return nil, fmt.Errorf("the image is a list with more than %d lists, artifacts and images of unknown platforms that "+
			"may be for this node: %w", maxRead, errdefs.ErrInvalidArgument)
	}
	found, err := readManifest(ctx, c.source, &entry.Digest)
	switch {
	case err != nil:
		return nil, fmt.Errorf("image %s of the list: %w", entry.Digest, err)
	case !manifest.MIMETypeIsMultiImage(found.mime):
		return c.judge(ctx, found, entry)
	case level == maxLevels:
		return nil, fmt.Errorf("the image is a list of lists with more than %d levels: %w", maxLevels,
			errdefs.ErrInvalidArgument)
	}
	return c.choose(ctx, found, wanted, level+1)
}

// judge returns the image with a manifest of a list, or nil: for an artifact (lists have signatures and bills of
// materials too), and if the list names no platform and the config that of other nodes.
func (c *chooser) judge(ctx context.Context, found rawManifest, entry candidate) (*instance, error) {
	image, err := newInstance(c.source, found, &entry.Digest)
	if err != nil {
		return nil, err
	}
	config, err := image.readConfig(ctx)
	var artifact manifest.NonImageArtifactError
	switch {
	case errors.As(err, &artifact):
		c.artifact, c.isFor = cmp.Or(c.artifact, image), c.isFor || !math.IsInf(entry.rank, 1)
		return nil, nil
	case err == nil && math.IsInf(entry.rank, 1) && checkRunnable(config.Platform) != nil:
		c.note(config.Platform)
		return nil, nil
	}
	return image, nil // other errors are those of its check
}

// entries returns the entries of a list that may be for this node, the best first. OCI's and docker's lists agree on
// the fields. Attestations have the platform unknown/unknown.
func (c *chooser) entries(blob rawManifest) ([]candidate, error) {
	var list v1.Index
	_, err := manifest.ListFromBlob(blob.raw, blob.mime) // refuses a list that is a manifest too
	if err == nil {
		err = json.Unmarshal(blob.raw, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("read manifest list: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	var fit []candidate
	for _, d := range list.Manifests {
		var p v1.Platform
		if d.Platform != nil {
			p = *d.Platform
			c.note(p)
		}
		if rank, ok := thisNode().rank(p); ok && isManifest(d.MediaType) {
			fit = append(fit, candidate{d, rank})
		}
	}
	slices.SortStableFunc(fit, func(a, b candidate) int { // zstd first, as the library does
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.Annotations[zstdKey], a.Annotations[zstdKey]))
	})
	return fit, nil
}

// candidate is an entry of a list that may be for this node, see node.rank.
type candidate struct {
	v1.Descriptor
	rank float64
}

// note adds a platform to those that an error names.
func (c *chooser) note(p v1.Platform) {
	if p.OS == "unknown" || p.Architecture == "" || len(c.platforms) == maxPlatforms {
		return
	}
	if name := platformName(p); !slices.Contains(c.platforms, name) {
		c.platforms = append(c.platforms, name)
	}
}

// isManifest reports whether an entry of a list with this type may be an image or a list.
func isManifest(mime string) bool {
	return mime == "" || slices.Contains(manifest.DefaultRequestedManifestMIMETypes, mime)
}

func annotated(has, variant map[string]string) bool {
	for key, value := range variant {
		if has[key] != value {
			return false
		}
	}
	return true
}
