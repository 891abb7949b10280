package worker

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"go.podman.io/image/v5/types"
	"go.podman.io/storage"

	"github.com/podd-project/podd/image/layers"
)

// RefetchedPrefix begins the names of directories in a pull's directory, which have a layer that was fetched again and
// unpacked. The id of the layer follows.
const RefetchedPrefix = "refetched-"

// refetch fetches the corrupt layers of a copied image again, for their repair, in a pull's process: the copy has
// skipped them because they exist.
func (w *worker) refetch(ctx context.Context, job copyJob, img *storage.Image, corrupt []string) error {
	chain, err := ChainOf(w.storage, img)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(chain, func(id string) bool { return slices.Contains(corrupt, id) }) {
		return nil
	}
	blobs, err := LayersOfChain(w.storage, img.ID, chain)
	if err != nil {
		return err
	}
	source, err := job.from.NewImageSource(ctx, job.sys)
	if err != nil {
		return err
	}
	defer source.Close()
	a := w.adder(source, job.image.files, job.progress)
	for i, id := range chain {
		if !slices.Contains(corrupt, id) {
			continue
		}
		if err := w.refetchLayer(ctx, a, blobs[i].BlobInfo, id); err != nil {
			return fmt.Errorf("fetch corrupt layer %s again: %w", id, err)
		}
	}
	return nil
}

func (w *worker) refetchLayer(ctx context.Context, a *layers.Adder, blob types.BlobInfo, id string) error {
	layer, err := w.storage.Layer(id)
	if err != nil {
		return err
	}
	a.Note(types.ProgressProperties{Event: types.ProgressEventRead, Artifact: blob}) // it was reported present
	return a.Unpack(ctx, layers.Layer{Blob: blob, DiffID: layer.UncompressedDigest, ID: id},
		filepath.Join(w.temp, RefetchedPrefix+id))
}
