package registry

import (
	"context"
	"encoding/json"
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
	named, err := ArtifactReference(ref)
	if err != nil {
		return "", err
	}
	sys := c.SystemContext()
	if err := TrustLoopback(sys, named); err != nil {
		return "", err
	}
	if _, ok := named.(reference.Tagged); !ok {
		return "", fmt.Errorf("%q: a push needs a tag, not a digest: %w", ref, errdefs.ErrInvalidArgument)
	}
	hosts, err := c.hosts()
	if err != nil {
		return "", err
	}
	var pushed string
	err = c.Guard(ctx, sys, named, hosts, func(ctx context.Context) (err error) {
		pushed, err = pushArtifact(ctx, sys, named, artifactType, blobs)
		return err
	})
	return pushed, err
}

func pushArtifact(
	ctx context.Context, sys *types.SystemContext, ref reference.Named, artifactType string, blobs []ArtifactBlob,
) (string, error) {
	to, err := docker.NewReference(ref)
	if err != nil {
		return "", err
	}
	dest, err := to.NewImageDestination(ctx, sys)
	if err != nil {
		return "", NewPullError(ref.String(), nil, err)
	}
	defer dest.Close()
	m := imgspecv1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: imgspecv1.MediaTypeImageManifest,
		ArtifactType: artifactType, Config: imgspecv1.DescriptorEmptyJSON,
	}
	empty := ArtifactBlob{Write: func(w io.Writer) error { _, err := w.Write(m.Config.Data); return err }}
	if _, err := putBlob(ctx, dest, empty); err != nil {
		return "", fmt.Errorf("push to %s: %w", ref, err)
	}
	for _, b := range blobs {
		d, err := putBlob(ctx, dest, b)
		if err != nil {
			return "", fmt.Errorf("push %s to %s: %w", b.Title, ref, err)
		}
		m.Layers = append(m.Layers, d)
	}
	data, err := json.Marshal(m)
	if err == nil {
		err = dest.PutManifest(ctx, data, nil)
	}
	if err != nil {
		return "", fmt.Errorf("push the manifest to %s: %w", ref, err)
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

// ArtifactReference parses a reference with a registry, and a tag or a digest.
func ArtifactReference(ref string) (reference.Named, error) {
	named, short, err := ParseReference(ref)
	if err == nil && short {
		err = fmt.Errorf("%q has no registry, want HOST/NAME:TAG: %w", ref, errdefs.ErrInvalidArgument)
	}
	return named, err
}
