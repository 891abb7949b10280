package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker"
	containersimage "go.podman.io/image/v5/image"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage"

	"github.com/podd-project/podd/image/layers"
)

// instance is the one image of a reference that is copied: that of a list that fits this node, or the only one. As a
// source it has this image alone, whose manifest was read and verified already, and fetches its config once. It has no
// sigstore attachments: only sources within the library do.
type instance struct {
	types.ImageSource
	// ref names the image: one of a registry by the digest of raw.
	ref types.ImageReference
	// top is the manifest that the reference names, of a list or of this image.
	top []byte
	// listed is the digest of the image in a list, nil without one. If isVariant, annotations have selected it.
	listed    *digest.Digest
	isVariant bool
	// rawManifest is the manifest as the library takes it, read the manifest as it was read, digest that of the latter.
	rawManifest
	read   []byte
	digest digest.Digest
	// id, layers and diffIDs are set by check; addLayers changes id if layers are lazy.
	id      string
	layers  []types.BlobInfo
	diffIDs []digest.Digest
	// isArtifact is set by check for an artifact, files are the layers of the image that ofArtifact has made of one.
	isArtifact bool
	files      map[digest.Digest]string

	mu     sync.Mutex
	config []byte
}

// newInstance returns the image with a manifest that was read from the source, listed in a list unless that is nil.
func newInstance(source types.ImageSource, read rawManifest, listed *digest.Digest) (*instance, error) {
	i := &instance{
		ImageSource: source, ref: source.Reference(), top: read.raw, listed: listed, rawManifest: read,
		read: read.raw, digest: digest.FromBytes(read.raw),
	}
	i.mendLayerTypes()
	err := i.mendConfigType()
	if err == nil && i.ref.Transport() == docker.Transport {
		i.ref, err = nameByDigest(i.ref.DockerReference(), digest.FromBytes(i.raw))
	}
	return i, err
}

// mendConfigType corrects the type of a config that is docker's in a manifest of OCI, which the library refuses. The
// configs are the same.
func (i *instance) mendConfigType() error {
	if i.mime != v1.MediaTypeImageManifest {
		return nil
	}
	parsed, err := manifest.OCI1FromManifest(i.raw)
	if err != nil {
		return fmt.Errorf("read manifest: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if parsed.Config.MediaType == manifest.DockerV2Schema2ConfigMediaType {
		parsed.Config.MediaType = v1.MediaTypeImageConfig
		i.raw, err = parsed.Serialize()
	}
	return err
}

// mendLayerTypes makes a manifest of OCI of one of docker with layers that docker's cannot have: of OCI's types, which
// the library refuses, or of zstd, which it cannot decompress for an export. The layers are the same.
func (i *instance) mendLayerTypes() {
	has := func(text string) bool { return bytes.Contains(i.raw, []byte(text)) }
	if i.mime != manifest.DockerV2Schema2MediaType ||
		!has(`"`+v1.MediaTypeImageLayer) && !has(strconv.Quote(manifest.DockerV2SchemaLayerMediaTypeZstd)) {
		return
	}
	for _, same := range [][2]string{
		{manifest.DockerV2Schema2MediaType, v1.MediaTypeImageManifest},
		{manifest.DockerV2SchemaLayerMediaTypeUncompressed, v1.MediaTypeImageLayer},
		{manifest.DockerV2Schema2LayerMediaType, v1.MediaTypeImageLayerGzip},
		{manifest.DockerV2SchemaLayerMediaTypeZstd, v1.MediaTypeImageLayerZstd},
	} {
		// In their quotes these are whole strings: quotes within a string of JSON are escaped.
		i.raw = bytes.ReplaceAll(i.raw, []byte(strconv.Quote(same[0])), []byte(strconv.Quote(same[1])))
	}
	i.mime = v1.MediaTypeImageManifest
}

// check fails for an image that this node cannot run, or that is not complete, before any layer is fetched. Of an
// artifact it says only that it is one.
func (i *instance) check(ctx context.Context, sys *types.SystemContext) error {
	img, err := containersimage.FromUnparsedImage(ctx, sys, containersimage.UnparsedInstance(i, nil))
	if err != nil {
		return fmt.Errorf("read manifest: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	config, err := img.OCIConfig(ctx)
	if err != nil {
		var artifact manifest.NonImageArtifactError
		if i.isArtifact = errors.As(err, &artifact); i.isArtifact {
			return nil
		}
		return fmt.Errorf("read config: %w", err)
	}
	id := img.ConfigInfo().Digest
	if err := checkDigest(id); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	i.id, i.layers, i.diffIDs = id.Encoded(), img.LayerInfos(), config.RootFS.DiffIDs
	if err := checkRunnable(config.Platform); err != nil {
		return err
	}
	if err := CheckConfig(&config.Config); err != nil {
		return err
	}
	raw, err := img.ConfigBlob(ctx)
	if err != nil {
		return fmt.Errorf("read config: %w", err)
	}
	if err := checkText(raw); err != nil {
		return err
	}
	return checkLayers(config.RootFS, len(i.layers))
}

// readConfig returns the config, or a manifest.NonImageArtifactError.
func (i *instance) readConfig(ctx context.Context) (*v1.Image, error) {
	img, err := containersimage.FromUnparsedImage(ctx, nil, containersimage.UnparsedInstance(i, nil))
	if err != nil {
		return nil, err
	}
	return img.OCIConfig(ctx)
}

// Reference is that of types.ImageSource.
func (i *instance) Reference() types.ImageReference { return i.ref }

// GetManifest is that of types.ImageSource.
func (i *instance) GetManifest(context.Context, *digest.Digest) ([]byte, string, error) {
	return i.raw, i.mime, nil
}

// GetSignatures is that of types.ImageSource.
func (i *instance) GetSignatures(ctx context.Context, _ *digest.Digest) ([][]byte, error) {
	return i.ImageSource.GetSignatures(ctx, i.listed)
}

// LayerInfosForCopy is that of types.ImageSource.
func (i *instance) LayerInfosForCopy(ctx context.Context, _ *digest.Digest) ([]types.BlobInfo, error) {
	return i.ImageSource.LayerInfosForCopy(ctx, i.listed)
}

// GetBlob is that of types.ImageSource.
func (i *instance) GetBlob(
	ctx context.Context, blob types.BlobInfo, cache types.BlobInfoCache,
) (io.ReadCloser, int64, error) {
	configs := []string{v1.MediaTypeImageConfig, manifest.DockerV2Schema2ConfigMediaType}
	if !slices.Contains(configs, blob.MediaType) || blob.Size < 0 || blob.Size > MaxBlob {
		return i.ImageSource.GetBlob(ctx, blob, cache)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.config == nil || digest.FromBytes(i.config) != blob.Digest {
		body, err := layers.OpenBlob(ctx, i.ImageSource, blob)
		if err != nil {
			return nil, 0, err
		}
		raw, err := io.ReadAll(io.LimitReader(body, MaxBlob+1)) // the library compares its digest
		if err := errors.Join(err, body.Close()); err != nil {
			return nil, 0, err
		}
		i.config = raw
	}
	return io.NopCloser(bytes.NewReader(i.config)), int64(len(i.config)), nil
}

// keepManifests stores the manifest as it was read with the copied image, and that which the reference names. The image
// then has their digests too. A list of which annotations have selected an image names another one without them.
func (i *instance) keepManifests(to storage.Store) error {
	kept := [][]byte{i.read}
	if !i.isVariant {
		kept = append(kept, i.top)
	}
	for _, raw := range kept {
		if bytes.Equal(raw, i.raw) {
			continue
		}
		key := storage.ImageDigestManifestBigDataNamePrefix + "-" + digest.FromBytes(raw).String()
		if err := to.SetImageBigData(i.id, key, raw, manifest.Digest); err != nil {
			return err
		}
	}
	return nil
}

// chain returns the layers, or false if podd does not know one.
func (i *instance) chain() ([]layers.Layer, bool) {
	kinds := []string{".tar", ".tar.gzip", ".tar+gzip", ".tar.zstd", ".tar+zstd"}
	unknown := func(blob types.BlobInfo) bool {
		plain := strings.TrimSuffix(blob.MediaType, "+encrypted")
		return !slices.ContainsFunc(kinds, func(kind string) bool { return strings.HasSuffix(plain, kind) })
	}
	if slices.ContainsFunc(i.layers, unknown) {
		return nil, false
	}
	return layers.Chain(i.layers, i.diffIDs)
}
