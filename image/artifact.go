package image

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sirupsen/logrus"
	"go.podman.io/image/v5/docker/reference"

	"github.com/podd-project/podd/image/registry"
	"github.com/podd-project/podd/image/worker"
)

const (
	// maxArtifactManifest bounds the manifest of an artifact, in bytes.
	maxArtifactManifest = 64 << 10
	// maxArtifactBlobs bounds its blobs.
	maxArtifactBlobs = 16
)

// Artifact is an artifact in a registry. Each part is fetched by a process that is confined as that of a pull.
type Artifact struct {
	// Digest is of the manifest.
	Digest string
	ref    reference.Named
	source *registry.PullConfig
	blobs  []v1.Descriptor
}

// OpenArtifact fetches the manifest of an artifact, which must be of this type: errdefs.ErrInvalidArgument. A digest in
// the reference is verified: errdefs.ErrDataLoss. Mirrors are tried before the registry. The caller, a command, closes
// the artifact.
func OpenArtifact(ctx context.Context, cfg Config, ref, artifactType string) (*Artifact, error) {
	named, err := registry.ArtifactReference(ref)
	if err != nil {
		return nil, err
	}
	sources, err := cfg.Sources(named)
	if err != nil {
		return nil, err
	}
	var failed []string
	for i, from := range sources {
		c, err := cfg.ForPull(ctx, named, from, nil, "")
		if err != nil {
			return nil, err
		}
		a := &Artifact{ref: named, source: c}
		if err = a.readManifest(ctx, artifactType); err == nil {
			return a, nil
		}
		a.Close()
		if i == len(sources)-1 || ctx.Err() != nil {
			return nil, registry.NewPullError(ref, nil, registry.AfterMirrors(err, failed))
		}
		failed = append(failed, fmt.Sprintf("%s: %v", from.Reference, err))
	}
	return nil, fmt.Errorf("no source of %s", ref)
}

// readManifest parses the manifest in this process: it is as small as a report of the other one, and the digest that
// the user gave says something about the blobs only if this process has compared it.
func (a *Artifact) readManifest(ctx context.Context, artifactType string) error {
	var data bytes.Buffer
	if err := a.fetch(ctx, worker.Part{Limit: maxArtifactManifest}, &data); err != nil {
		return err
	}
	got := digest.FromBytes(data.Bytes())
	if want, ok := a.ref.(reference.Digested); ok && want.Digest() != got {
		return fmt.Errorf("the registry sent another manifest than %s: %w", want.Digest(), errdefs.ErrDataLoss)
	}
	var m v1.Manifest
	if err := json.Unmarshal(data.Bytes(), &m); err != nil {
		return fmt.Errorf("manifest: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if m.ArtifactType != artifactType {
		return fmt.Errorf("it is of type %.100q, want an artifact of type %q: %w", m.ArtifactType, artifactType,
			errdefs.ErrInvalidArgument)
	}
	if len(m.Layers) > maxArtifactBlobs {
		return fmt.Errorf("it has %d blobs, at most %d are allowed: %w", len(m.Layers), maxArtifactBlobs,
			errdefs.ErrInvalidArgument)
	}
	a.Digest, a.blobs = got.String(), m.Layers
	var err error
	a.ref, err = reference.WithDigest(reference.TrimNamed(a.ref), got) // the tag may move
	return err
}

// Blob returns the content of the blob with this title: errdefs.ErrNotFound if there is none,
// errdefs.ErrResourceExhausted if it has more than limit bytes. One whose title ends in .zst is decompressed, to limit
// bytes at most. At the end of content that the manifest does not describe the reader returns errdefs.ErrDataLoss
// instead of io.EOF.
func (a *Artifact) Blob(ctx context.Context, title string, limit int64) (io.ReadCloser, error) {
	for _, d := range a.blobs {
		if d.Annotations[v1.AnnotationTitle] != title {
			continue
		}
		if d.Size < 0 || d.Size > limit {
			return nil, fmt.Errorf("%s of %s has %d bytes, at most %d are allowed: %w", title, a.ref, d.Size, limit,
				errdefs.ErrResourceExhausted)
		}
		if err := d.Digest.Validate(); err != nil {
			return nil, fmt.Errorf("digest of %s of %s: %w: %w", title, a.ref, err, errdefs.ErrInvalidArgument)
		}
		part := worker.Part{Digest: d.Digest, Size: d.Size, Limit: limit, Unpack: strings.HasSuffix(title, ".zst")}
		r, w := io.Pipe()
		go func() {
			err := a.fetch(ctx, part, w)
			if errdefs.IsNotFound(err) { // not ErrNotFound: there should be one
				err = fmt.Errorf("the registry has lost %s: %v: %w", title, err, errdefs.ErrDataLoss)
			}
			if err != nil {
				err = registry.NewPullError(a.ref.String(), nil, err)
			}
			w.CloseWithError(err)
		}()
		return r, nil
	}
	return nil, fmt.Errorf("%s has no blob %q: %w", a.ref, title, errdefs.ErrNotFound)
}

func (a *Artifact) fetch(ctx context.Context, part worker.Part, to io.Writer) error {
	job := worker.Job{Ref: a.ref.String(), Part: &part}
	return worker.FetchPart(ctx, job, a.source, worker.Daemon{Log: logrus.StandardLogger()}, to)
}

// Close removes the files with the configuration of the registry.
func (a *Artifact) Close() { a.source.Close() }
