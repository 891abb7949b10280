// Package layers fetches the layers of an image and unpacks them side by side, which containers/image does one after
// the other: it decompresses each layer twice, and unpacks one only when the layer below it is stored.
//
// It writes to a directory of its caller and stores complete layers, bottom first, under the ids that containers/image
// gives them. It knows nothing of manifests, names and policies. Only the image package calls it.
package layers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage"
	"go.podman.io/storage/pkg/archive"
	"golang.org/x/sync/errgroup"
)

// Layer is one layer of an image.
type Layer struct {
	// Blob is the compressed layer in the image's manifest, DiffID the digest of its tar in the image's config.
	Blob   types.BlobInfo
	DiffID digest.Digest
	// ID and Parent are ids in storage; Parent is "" for the lowest layer.
	ID, Parent string
	// Lazy is set if the layer is not fetched: its files are in an additional layer store.
	Lazy *Lazy
}

// ChainID returns the id that containers/image gives a layer on a parent, "" for none: the content of a layer and of
// all below it, so that images share it.
func ChainID(parent string, diffID digest.Digest) string {
	if parent == "" {
		return diffID.Encoded()
	}
	return digest.Canonical.FromString(parent + "+" + diffID.Encoded()).Encoded()
}

// Chain returns the layers of an image, the lowest first, or false if the digests are not complete and well-formed, or
// a blob is to be fetched from another place than the registry.
func Chain(blobs []types.BlobInfo, diffIDs []digest.Digest) ([]Layer, bool) {
	if len(blobs) != len(diffIDs) {
		return nil, false
	}
	parent := ""
	var out []Layer
	for i, blob := range blobs {
		for _, d := range []digest.Digest{blob.Digest, diffIDs[i]} {
			if d.Validate() != nil || d.Algorithm() != digest.Canonical {
				return nil, false
			}
		}
		if blob.Size < 0 || len(blob.URLs) > 0 {
			return nil, false
		}
		id := ChainID(parent, diffIDs[i])
		out = append(out, Layer{Blob: blob, DiffID: diffIDs[i], ID: id, Parent: parent})
		parent = id
	}
	return out, true
}

// Adder stores layers.
type Adder struct {
	// Store is one that Exclusive has returned.
	Store  storage.Store
	Source types.ImageSource
	// Files are blobs that are not fetched: they are moved from these paths.
	Files map[digest.Digest]string
	// Dir is a directory on the filesystem of the store, for layers that are not stored yet.
	Dir string
	// MaxBlob bounds a blob of which the manifest has no size, in bytes.
	MaxBlob int64
	// MaxMetadata bounds the parts of all tars that are kept in addition to the files: headers, padding and the data of
	// sparse files, in bytes as tar-split writes them, about 1.4 KB for each file.
	MaxMetadata int64
	// Decrypt decrypts a blob for which IsEncrypted is true.
	Decrypt func(types.BlobInfo, io.Reader) (io.Reader, error)
	// Downloads and Unpacks bound how many layers are fetched and unpacked at the same time.
	Downloads, Unpacks int
	// Note gets the progress of downloads; it may be called concurrently.
	Note func(types.ProgressProperties)
	// Count counts files and bytes of the tars, and returns an error at their limits.
	Count func(files, bytes int64) error
}

// Add fetches, unpacks and stores the layers of a chain that are not in the store. A layer whose content is there on
// other layers is not fetched. A layer is unpacked when all of its blob has been received and has its digest, and
// stored when its tar has the digest DiffID. After an error the layers below those that failed are stored.
func (a *Adder) Add(ctx context.Context, chain []Layer) error {
	group, groupCtx := errgroup.WithContext(ctx)
	downloads, unpacks := make(places, a.Downloads), make(places, a.Unpacks)
	below := closed()
	var metadata atomic.Int64
	for i, l := range chain {
		if _, err := a.Store.Layer(l.ID); err == nil {
			below = closed()
			continue
		}
		if !downloads.take(groupCtx) {
			break
		}
		parent, stored := below, make(chan struct{})
		below = stored
		group.Go(func() error {
			s := a.staged(l, filepath.Join(a.Dir, "layer-"+strconv.Itoa(i)), &metadata)
			err := a.add(groupCtx, s, downloads, unpacks, parent)
			if err == nil {
				close(stored)
			}
			return errors.Join(err, os.RemoveAll(s.dir))
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

func (a *Adder) staged(l Layer, dir string, metadata *atomic.Int64) *staged {
	return &staged{
		Layer: l, dir: dir, count: a.Count, metadata: bounded{written: metadata, most: a.MaxMetadata},
	}
}

// Unpack fetches a layer that the store has, and unpacks it in a new directory. Unpacked says where.
func (a *Adder) Unpack(ctx context.Context, l Layer, dir string) error {
	s := a.staged(l, dir, new(atomic.Int64))
	if err := s.makeDir(); err != nil {
		return err
	}
	if err := a.download(ctx, s); err != nil {
		return err
	}
	if err := s.unpack(ctx); err != nil {
		return fmt.Errorf("unpacking blob %s: %w", s.Blob.Digest, contentError(ctx, err))
	}
	return s.compressTarSplit()
}

// Unpacked returns the directory of the files that Unpack has written in dir, and the file with the metadata of the
// tar, as storage has it.
func Unpacked(dir string) (files, tarSplit string) {
	s := staged{dir: dir}
	return s.files(), s.tarSplit() + ".gz"
}

// add takes one layer from the registry to the store. Its caller has taken a place among the downloads.
func (a *Adder) add(ctx context.Context, s *staged, downloads, unpacks places, parent <-chan struct{}) error {
	if s.Lazy != nil {
		downloads.leave()
		return a.addLazy(ctx, s, parent)
	}
	err := a.fetch(ctx, s)
	downloads.leave()
	if err != nil {
		return fmt.Errorf("reading blob %s: %w", s.Blob.Digest, err)
	}
	if !unpacks.take(ctx) {
		return context.Cause(ctx)
	}
	err = s.unpack(ctx)
	unpacks.leave()
	if err != nil {
		return fmt.Errorf("unpacking blob %s: %w", s.Blob.Digest, contentError(ctx, err))
	}
	select {
	case <-parent:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := s.store(a.Store); err != nil {
		return fmt.Errorf("storing layer %s: %w", s.ID, err)
	}
	return nil
}

// fetch takes the blob of a layer to its directory, from the store or the registry.
func (a *Adder) fetch(ctx context.Context, s *staged) error {
	if err := s.makeDir(); err != nil {
		return err
	}
	if a.reuse(s) {
		return nil
	}
	return a.download(ctx, s)
}

func (a *Adder) download(ctx context.Context, s *staged) error {
	if IsEncrypted(s.Blob.MediaType) {
		s.decrypt = a.Decrypt
	}
	if file, ok := a.Files[s.Blob.Digest]; ok {
		return os.Rename(file, s.blob())
	}
	return a.Fetch(ctx, s.Blob, s.blob())
}

// Fetch writes a blob, whose digest it checks, to a new file.
func (a *Adder) Fetch(ctx context.Context, b types.BlobInfo, to string) error {
	file, err := os.Create(to)
	if err != nil {
		return err
	}
	blob := download{source: a.Source, blob: b, most: b.Size, note: a.Note}
	if blob.most <= 0 {
		blob.most = a.MaxBlob
	}
	return errors.Join(blob.write(ctx, file), file.Close())
}

// reuse takes the tar of a layer to its directory if the store has it on other layers, and it is intact.
func (a *Adder) reuse(s *staged) bool {
	same, err := a.Store.LayersByUncompressedDigest(s.DiffID)
	if err != nil || len(same) == 0 {
		return false
	}
	plain := archive.Uncompressed
	diff, err := a.Store.Diff("", same[0].ID, &storage.DiffOptions{Compression: &plain})
	if err != nil {
		return false
	}
	defer diff.Close()
	file, err := os.Create(s.blob())
	if err != nil {
		return false
	}
	sum := s.DiffID.Verifier()
	_, err = io.Copy(io.MultiWriter(file, sum), diff)
	return errors.Join(err, file.Close()) == nil && sum.Verified()
}

// places bound how many goroutines do something at the same time.
type places chan struct{}

// take waits for a place; it returns false if ctx has ended.
func (p places) take(ctx context.Context) bool {
	select {
	case p <- struct{}{}:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func (p places) leave() { <-p }

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
