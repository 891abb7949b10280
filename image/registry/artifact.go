package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	imgspecv1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"
)

// maxArtifactBlobs bounds the blobs of an artifact.
const maxArtifactBlobs = 16

// ArtifactBlob is a blob to push.
type ArtifactBlob struct {
	// Title is its name, in the annotation org.opencontainers.image.title.
	Title, MediaType string
	// Write writes the content.
	Write func(w io.Writer) error
}

// PushArtifact pushes blobs as an artifact (OCI image specification 1.1, "Guidelines for Artifact Usage") with a tag,
// and returns the digest of its manifest. Registries and credentials are those of c; no image store is used.
func (c Config) PushArtifact(ctx context.Context, ref, artifactType string, blobs []ArtifactBlob) (string, error) {
	named, sys, err := c.artifactReference(ref)
	if err != nil {
		return "", err
	}
	if _, ok := named.(reference.Tagged); !ok {
		return "", fmt.Errorf("%q: a push needs a tag, not a digest: %w", ref, errdefs.ErrInvalidArgument)
	}
	to, err := docker.NewReference(named)
	if err != nil {
		return "", err
	}
	dest, err := to.NewImageDestination(ctx, sys)
	if err != nil {
		return "", NewPullError(ref, nil, err)
	}
	defer dest.Close()
	m := imgspecv1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: imgspecv1.MediaTypeImageManifest,
		ArtifactType: artifactType, Config: imgspecv1.DescriptorEmptyJSON,
	}
	empty := ArtifactBlob{Write: func(w io.Writer) error { _, err := w.Write(m.Config.Data); return err }}
	if _, err := putBlob(ctx, dest, empty); err != nil {
		return "", fmt.Errorf("push to %s: %w", named, err)
	}
	for _, b := range blobs {
		d, err := putBlob(ctx, dest, b)
		if err != nil {
			return "", fmt.Errorf("push %s to %s: %w", b.Title, named, err)
		}
		m.Layers = append(m.Layers, d)
	}
	data, err := json.Marshal(m)
	if err == nil {
		err = dest.PutManifest(ctx, data, nil)
	}
	if err != nil {
		return "", fmt.Errorf("push the manifest to %s: %w", named, err)
	}
	return digest.FromBytes(data).String(), dest.Commit(ctx, nil)
}

// putBlob pushes a blob while it is written.
func putBlob(ctx context.Context, dest types.ImageDestination, b ArtifactBlob) (imgspecv1.Descriptor, error) {
	r, w := io.Pipe()
	go func() { w.CloseWithError(b.Write(w)) }()
	info, err := dest.PutBlob(ctx, r, types.BlobInfo{Size: -1}, none.NoCache, false)
	_ = r.CloseWithError(err) // ends Write
	return imgspecv1.Descriptor{
		MediaType: b.MediaType, Digest: info.Digest, Size: info.Size,
		Annotations: map[string]string{imgspecv1.AnnotationTitle: b.Title},
	}, err
}

// artifactReference parses a reference with a registry, a tag or a digest.
func (c Config) artifactReference(ref string) (reference.Named, *types.SystemContext, error) {
	named, short, err := ParseReference(ref)
	if err != nil {
		return nil, nil, err
	}
	if short {
		return nil, nil, fmt.Errorf("%q has no registry, want HOST/NAME:TAG: %w", ref, errdefs.ErrInvalidArgument)
	}
	sys := c.SystemContext()
	return named, sys, TrustLoopback(sys, named)
}

// Artifact is an artifact in a registry.
type Artifact struct {
	// Digest is of the manifest.
	Digest string
	ref    string
	source types.ImageSource
	layers []imgspecv1.Descriptor
}

// OpenArtifact fetches the manifest of an artifact, which must be of this type: errdefs.ErrInvalidArgument. A digest in
// the reference is verified: errdefs.ErrDataLoss. The caller closes the artifact.
func (c Config) OpenArtifact(ctx context.Context, ref, artifactType string) (*Artifact, error) {
	named, sys, err := c.artifactReference(ref)
	if err != nil {
		return nil, err
	}
	from, err := docker.NewReference(named)
	if err != nil {
		return nil, err
	}
	source, err := from.NewImageSource(ctx, sys)
	if err != nil {
		return nil, NewPullError(ref, nil, err)
	}
	a := &Artifact{ref: ref, source: source}
	if err := a.readManifest(ctx, named, artifactType); err != nil {
		return nil, errors.Join(NewPullError(ref, nil, err), a.Close())
	}
	return a, nil
}

// readManifest reads the manifest; the library refuses one of more than 4 MiB.
func (a *Artifact) readManifest(ctx context.Context, named reference.Named, artifactType string) error {
	data, kind, err := a.source.GetManifest(ctx, nil)
	if err != nil {
		return err
	}
	d := digest.FromBytes(data)
	if want, ok := named.(reference.Digested); ok {
		if d = want.Digest(); !verifies(d, data) {
			return fmt.Errorf("the registry sent another manifest than %s: %w", d, errdefs.ErrDataLoss)
		}
	}
	a.Digest = d.String()
	var m imgspecv1.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("manifest: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if kind != imgspecv1.MediaTypeImageManifest || m.ArtifactType != artifactType {
		return fmt.Errorf("it is %.100q of type %.100q, want an artifact of type %q: %w", kind, m.ArtifactType,
			artifactType, errdefs.ErrInvalidArgument)
	}
	if len(m.Layers) > maxArtifactBlobs {
		return fmt.Errorf("it has %d blobs, at most %d are allowed: %w", len(m.Layers), maxArtifactBlobs,
			errdefs.ErrInvalidArgument)
	}
	a.layers = m.Layers
	return nil
}

func verifies(d digest.Digest, data []byte) bool {
	if d.Validate() != nil {
		return false
	}
	v := d.Verifier()
	_, _ = v.Write(data) // a hash does not fail
	return v.Verified()
}

// Blob returns the content of the blob with this title: errdefs.ErrNotFound if there is none,
// errdefs.ErrResourceExhausted if it has more than limit bytes. At the end of content that the manifest does not
// describe the reader returns errdefs.ErrDataLoss instead of io.EOF. It never reads more than the size in the manifest
// and one byte.
func (a *Artifact) Blob(ctx context.Context, title string, limit int64) (io.ReadCloser, error) {
	for _, d := range a.layers {
		if d.Annotations[imgspecv1.AnnotationTitle] != title {
			continue
		}
		if d.Size < 0 || d.Size > limit {
			return nil, fmt.Errorf("%s of %s has %d bytes, at most %d are allowed: %w", title, a.ref, d.Size, limit,
				errdefs.ErrResourceExhausted)
		}
		if err := d.Digest.Validate(); err != nil {
			return nil, fmt.Errorf("digest of %s of %s: %w: %w", title, a.ref, err, errdefs.ErrInvalidArgument)
		}
		// Without URLs in the descriptor, so that the registry cannot name other hosts.
		r, _, err := a.source.GetBlob(ctx, types.BlobInfo{Digest: d.Digest, Size: d.Size}, none.NoCache)
		if err != nil {
			return nil, NewPullError(a.ref, nil, err)
		}
		return &verified{ReadCloser: r, rest: io.LimitReader(r, d.Size+1), want: d, hash: d.Digest.Verifier()}, nil
	}
	return nil, fmt.Errorf("%s has no blob %q: %w", a.ref, title, errdefs.ErrNotFound)
}

// Close ends connections.
func (a *Artifact) Close() error { return a.source.Close() }

// verified compares a blob with its descriptor at its end.
type verified struct {
	io.ReadCloser
	rest io.Reader
	want imgspecv1.Descriptor
	hash digest.Verifier
	read int64
}

func (v *verified) Read(p []byte) (int, error) {
	n, err := v.rest.Read(p)
	v.read += int64(n)
	_, _ = v.hash.Write(p[:n]) // a hash does not fail
	if errors.Is(err, io.EOF) && (v.read != v.want.Size || !v.hash.Verified()) {
		err = fmt.Errorf("the registry sent other content than %s of %d bytes: %w", v.want.Digest, v.want.Size,
			errdefs.ErrDataLoss)
	}
	return n, err
}
