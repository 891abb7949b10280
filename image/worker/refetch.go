package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"go.podman.io/image/v5/types"
	"go.podman.io/storage"

	"github.com/podd-project/podd/image/layers"
)

// RefetchedPrefix begins the names of files in a pull's directory, which have a layer that was fetched again. The id of
// the layer follows.
const RefetchedPrefix = "refetched-"

// refetch fetches the corrupt layers of a copied image again, into files for repair, in a pull's process: the copy has
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
	for i, id := range chain {
		if !slices.Contains(corrupt, id) {
			continue
		}
		if err := w.refetchLayer(ctx, source, blobs[i].BlobInfo, id, job.progress); err != nil {
			return fmt.Errorf("fetch corrupt layer %s again: %w", id, err)
		}
	}
	return nil
}

// refetchLayer downloads the blob of a layer into a file in the pull's directory and checks its digest.
func (w *worker) refetchLayer(
	ctx context.Context, source types.ImageSource, blob types.BlobInfo, id string, out Progress,
) error {
	out.Note(types.ProgressProperties{Event: types.ProgressEventRead, Artifact: blob}) // it was reported present
	file, err := os.OpenFile(filepath.Join(w.temp, RefetchedPrefix+id), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	most := blob.Size
	if most < 0 { // old manifests have no sizes
		most = w.cfg.MaxImageBytes
	}
	from := layers.Download{Source: source, Blob: blob, Most: most, Note: out.Note}
	return errors.Join(from.Write(ctx, file), file.Close())
}
