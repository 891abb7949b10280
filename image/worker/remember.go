package worker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/types"
)

// rememberingSource fetches each manifest once, and the config, which the library reads for the check of the platform,
// for the layers and for the copy. It has no sigstore attachments: only sources within the library do.
type rememberingSource struct {
	types.ImageSource
	mu        sync.Mutex
	manifests map[digest.Digest]fetchedManifest
	config    []byte
}

type fetchedManifest struct {
	raw  []byte
	mime string
}

// remember returns a source that fetches manifests and the config once, or the same one if the node uses sigstore
// attachments.
func remember(source types.ImageSource) types.ImageSource {
	if slices.ContainsFunc(signatureDirs, usesAttachments) {
		return source
	}
	return &rememberingSource{ImageSource: source, manifests: map[digest.Digest]fetchedManifest{}}
}

// usesAttachments reports whether a file of dir has the key that enables sigstore attachments:
// containers-registries.d(5).
func usesAttachments(dir string) bool {
	files, _ := filepath.Glob(dir + "/*.yaml") // fails for a malformed pattern only
	return slices.ContainsFunc(files, func(file string) bool {
		raw, err := os.ReadFile(file)
		return err == nil && bytes.Contains(raw, []byte("use-sigstore-attachments"))
	})
}

// GetManifest is that of types.ImageSource.
func (r *rememberingSource) GetManifest(ctx context.Context, instance *digest.Digest) ([]byte, string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var key digest.Digest
	if instance != nil {
		key = *instance
	}
	if m, ok := r.manifests[key]; ok {
		return m.raw, m.mime, nil
	}
	raw, mime, err := r.ImageSource.GetManifest(ctx, instance)
	if err == nil {
		r.manifests[key] = fetchedManifest{raw, mime}
	}
	return raw, mime, err
}

// GetBlob is that of types.ImageSource.
func (r *rememberingSource) GetBlob(
	ctx context.Context, blob types.BlobInfo, cache types.BlobInfoCache,
) (io.ReadCloser, int64, error) {
	configs := []string{v1.MediaTypeImageConfig, manifest.DockerV2Schema2ConfigMediaType}
	if !slices.Contains(configs, blob.MediaType) || blob.Size < 0 || blob.Size > MaxBlob {
		return r.ImageSource.GetBlob(ctx, blob, cache)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.config == nil || digest.FromBytes(r.config) != blob.Digest {
		body, _, err := r.ImageSource.GetBlob(ctx, blob, cache)
		if err != nil {
			return nil, 0, err
		}
		raw, err := io.ReadAll(io.LimitReader(body, MaxBlob+1)) // the library compares its digest
		if err := errors.Join(err, body.Close()); err != nil {
			return nil, 0, err
		}
		r.config = raw
	}
	return io.NopCloser(bytes.NewReader(r.config)), int64(len(r.config)), nil
}
