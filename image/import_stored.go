package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/manifest"
	containersstorage "go.podman.io/image/v5/storage"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage"
	"go.podman.io/storage/pkg/archive"
	storagetypes "go.podman.io/storage/types"

	"github.com/podd-project/podd/image/layers"
)

// maxImportedItems bounds the data items of an image: manifests, the config and signatures.
const maxImportedItems = 64

// importStored copies an image from the containers/storage of another runtime, in a pull's process. Nothing of it is
// trusted: signatures, digests of manifests, of the config and of the layers, and the ids of layers are checked.
func (s *Store) importStored(ctx context.Context, job pullJob, out *reporter) (pulled, error) {
	other, err := s.openOther(job.Storage)
	if err != nil {
		return pulled{}, err
	}
	img, err := other.storage.Image(job.Stored)
	if err != nil {
		return pulled{}, fmt.Errorf("look up image %s: %w", job.Stored, err)
	}
	for _, name := range job.Names {
		if err := other.verifyStored(ctx, img.ID, []string{name}); err != nil {
			return pulled{}, err
		}
	}
	items, err := other.readItems(img, job.Names)
	if err != nil {
		return pulled{}, err
	}
	config, err := other.checkImported(ctx, img.ID)
	if err != nil {
		return pulled{}, err
	}
	if err := out.send(pullReport{Kind: reportStage}); err != nil {
		return pulled{}, err
	}
	if err := s.importLayers(ctx, other, img.TopLayer, config.RootFS.DiffIDs, out); err != nil {
		return pulled{}, err
	}
	_, err = s.storage.CreateImage(img.ID, nil, img.TopLayer, img.Metadata,
		&storage.ImageOptions{CreationDate: img.Created, Digest: img.Digest, BigData: items})
	if err != nil && !errors.Is(err, storage.ErrDuplicateID) { // it may be there under other names
		return pulled{}, fmt.Errorf("create image %s: %w", img.ID, err)
	}
	return pulled{ID: img.ID, Digest: img.Digest}, nil
}

// openOther opens the images of another directory of containers/storage, which is only read, beside an empty store.
// Beside the own one the library would take the other's layers for remains of its own, and remove them.
func (s *Store) openOther(root string) (*Store, error) {
	opened, err := storage.GetStore(storagetypes.StoreOptions{
		RunRoot: s.cfg().RunRoot, GraphRoot: filepath.Join(s.temp, "empty"), GraphDriverName: "overlay",
		GraphDriverOptions: []string{"overlay.skip_mount_home=true", "overlay.imagestore=" + root},
	})
	if err != nil {
		return nil, fmt.Errorf("open the images in %s: %w", root, err)
	}
	other := &Store{log: s.log, storage: opened, temp: s.temp}
	other.settings.Store(s.cfg())
	return other, nil
}

// readItems returns the data items of an image, and checks their kinds, sizes and digests. A name by digest must be
// that of one of the manifests.
func (s *Store) readItems(img *storage.Image, names []string) (items []storage.ImageBigDataOption, err error) {
	if len(img.BigDataNames) > maxImportedItems {
		return nil, fmt.Errorf("%w: it has more than %d data items", errdefs.ErrInvalidArgument, maxImportedItems)
	}
	manifests := map[digest.Digest]bool{}
	for _, key := range img.BigDataNames {
		data, err := s.blob(img.ID, key)
		if err != nil {
			return nil, fmt.Errorf("read data item %.100q: %w", key, err)
		}
		sum := digest.FromBytes(data)
		switch {
		case strings.HasPrefix(key, storage.ImageDigestBigDataKey):
			if sum, err = manifest.Digest(data); err != nil {
				return nil, fmt.Errorf("digest of %.100q: %w", key, err)
			}
			manifests[sum] = true
		case key == "sha256:"+img.ID, strings.HasPrefix(key, "signature"):
		default:
			return nil, fmt.Errorf("%w: it has a data item %.100q, which is none of an image", errdefs.ErrInvalidArgument, key)
		}
		items = append(items, storage.ImageBigDataOption{Key: key, Data: data, Digest: sum})
	}
	if !manifests[img.Digest] {
		return nil, fmt.Errorf("%w: it has no manifest with its digest %.100q", errdefs.ErrInvalidArgument, img.Digest)
	}
	for _, text := range names {
		name, err := reference.ParseNamed(text)
		if err != nil {
			return nil, err
		}
		if d, ok := name.(reference.Digested); ok && !manifests[d.Digest()] {
			return nil, fmt.Errorf("%w: it has no manifest with the digest of its name %s", errdefs.ErrInvalidArgument, text)
		}
	}
	return items, nil
}

// checkImported checks that an image runs here, and returns its config. That has the image's id as its digest: of
// another one readItems has refused the data item.
func (s *Store) checkImported(ctx context.Context, id string) (*v1.Image, error) {
	ref, err := containersstorage.Transport.NewStoreReference(s.storage, nil, id)
	if err != nil {
		return nil, err
	}
	source, err := ref.NewImageSource(ctx, s.systemContext())
	if err != nil {
		return nil, err
	}
	defer source.Close()
	if err := checkSource(ctx, s.systemContext(), source); err != nil {
		return nil, err
	}
	blob, kind, err := source.GetManifest(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	man, err := manifest.FromBlob(blob, kind)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	return s.config(id, man)
}

// importLayers copies the layers that the store does not have. Top is the id of the topmost one.
func (s *Store) importLayers(
	ctx context.Context, other *Store, top string, diffIDs []digest.Digest, out *reporter,
) error {
	var chain []*storage.Layer
	for id := top; id != ""; id = chain[len(chain)-1].Parent {
		if len(chain) == len(diffIDs) {
			return fmt.Errorf("%w: it has more layers than its config", errdefs.ErrInvalidArgument)
		}
		layer, err := other.storage.Layer(id)
		if err != nil {
			return fmt.Errorf("look up layer %s: %w", id, err)
		}
		chain = append(chain, layer)
	}
	if len(chain) != len(diffIDs) {
		return fmt.Errorf("%w: it has %d layers, its config %d", errdefs.ErrInvalidArgument, len(chain), len(diffIDs))
	}
	slices.Reverse(chain)
	for i, layer := range chain {
		if err := diffIDs[i].Validate(); err != nil {
			return fmt.Errorf("%w: its config has the digest %.100q: %w", errdefs.ErrInvalidArgument, diffIDs[i], err)
		}
		if want := layers.ChainID(layer.Parent, diffIDs[i]); layer.ID != want {
			return fmt.Errorf("%w: layer %s was stored under another id than %s, as when it was pulled in parts",
				errdefs.ErrInvalidArgument, layer.ID, want)
		}
		if _, err := s.storage.Layer(layer.ID); err == nil {
			continue
		}
		if err := s.importLayer(ctx, other, layer, diffIDs[i], out); err != nil {
			return fmt.Errorf("layer %s: %w", diffIDs[i], err)
		}
	}
	return nil
}

// importLayer copies a layer. It is stored only if it has the digest diffID.
func (s *Store) importLayer(
	ctx context.Context, other *Store, from *storage.Layer, diffID digest.Digest, out *reporter,
) error {
	plain := archive.Uncompressed
	diff, err := other.storage.Diff("", from.ID, &storage.DiffOptions{Compression: &plain})
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	defer diff.Close()
	reader := &verifiedReader{
		ctx: ctx, from: diff, sum: diffID.Verifier(), out: out,
		blob: types.BlobInfo{Digest: diffID, Size: from.UncompressedSize},
	}
	// The digest of the compressed layer, by which later pulls would find this one, cannot be checked and is left out.
	_, _, err = s.storage.PutLayer(from.ID, from.Parent, nil, "", false, nil, reader)
	switch {
	case errors.Is(err, storage.ErrDuplicateID): // a pull has stored it meanwhile
		return nil
	case err == nil && !reader.verified:
		return errors.Join(fmt.Errorf("%w: it was not read to its end", errdefs.ErrInvalidArgument),
			s.storage.DeleteLayer(from.ID))
	}
	return err
}

// verifiedReader fails at its end unless what was read has the digest of sum. It reports progress.
type verifiedReader struct {
	ctx      context.Context
	from     io.Reader
	sum      digest.Verifier
	verified bool
	out      *reporter
	blob     types.BlobInfo
	read     uint64
}

func (r *verifiedReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	n, err := r.from.Read(p)
	_, _ = r.sum.Write(p[:n]) // a hash: it cannot fail
	r.read += uint64(n)
	r.out.note(types.ProgressProperties{
		Event: types.ProgressEventRead, Artifact: r.blob, Offset: r.read, OffsetUpdate: uint64(n),
	})
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if r.verified = r.sum.Verified(); !r.verified {
		return n, fmt.Errorf("%w: its content does not have the digest %s", errdefs.ErrInvalidArgument, r.blob.Digest)
	}
	return n, err
}
