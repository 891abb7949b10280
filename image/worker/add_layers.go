package worker

import (
	"context"
	"runtime"
	"sync"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/types"

	"github.com/podd-project/podd/image/layers"
)

// maxUnpacks bounds the layers of one pull that are unpacked at the same time: each needs buffers of several MiB in the
// pull's memory (PullMemory).
const maxUnpacks = 4

// maxDownloads bounds the layers of one pull that are downloaded at the same time.
const maxDownloads = 6

// metadataShare: the headers, padding and sparse files of the layers' tars may have MaxImageBytes divided by this on
// disk, where they are not compressed. It is enough for the headers of maxImageFiles with the default MaxImageBytes.
const metadataShare = 4

// addLayers stores the layers of an image side by side before it is copied: the copy then finds them in the store. It
// does nothing for an image with layers that it does not know: the copy fails with the reason.
//
// Layers that the additional layer store has are not fetched, except those in corrupt. It returns their ids.
func (w *worker) addLayers(ctx context.Context, job copyJob, corrupt []string) (lazy []string, err error) {
	chain, ok := job.image.chain()
	if !ok {
		return nil, nil
	}
	if err := w.readKeys(chain); err != nil {
		return nil, err
	}
	plan := lazyPlan{store: w.storage, chain: chain, corrupt: corrupt, most: w.cfg.MaxImageBytes}
	if err := plan.make(ctx, w.lookUp, job.image.digest); err != nil {
		return nil, err
	}
	job.image.id = plan.imageID(job.image.id)
	return plan.lazy(), w.adder(job.image, job.image.files, job.progress).Add(ctx, plan.chain)
}

// adder returns what stores the layers of one image, with its limits. Files are those that were fetched already.
func (w *worker) adder(source types.ImageSource, files map[digest.Digest]string, out Progress) *layers.Adder {
	meter := &unpackMeter{mostBytes: w.cfg.MaxImageBytes, mostFiles: maxImageFiles}
	return &layers.Adder{
		Store: w.storage, Source: source, Files: files, Dir: w.temp, Note: out.Note, Count: meter.add,
		MaxBlob: w.cfg.MaxImageBytes, MaxMetadata: w.cfg.MaxImageBytes / metadataShare, Decrypt: w.decrypt,
		Downloads: maxDownloads, Unpacks: min(runtime.GOMAXPROCS(0), maxUnpacks),
	}
}

// Progress takes the library's reports of a transfer.
type Progress interface {
	Note(types.ProgressProperties)
}

// fetched passes reports on, except those of the copy that a blob is present which addLayers has fetched.
type fetched struct {
	to    Progress
	mu    sync.Mutex
	blobs map[digest.Digest]bool
}

func newFetched(to Progress, img *instance) *fetched {
	f := &fetched{to: to, blobs: map[digest.Digest]bool{}}
	for blob := range img.files {
		f.blobs[blob] = true
	}
	return f
}

func (f *fetched) Note(p types.ProgressProperties) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.Event == types.ProgressEventSkipped && f.blobs[p.Artifact.Digest] {
		return
	}
	f.blobs[p.Artifact.Digest] = true
	f.to.Note(p)
}
