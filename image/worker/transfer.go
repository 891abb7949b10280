package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	containersstorage "go.podman.io/image/v5/storage"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/copy"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage"

	"github.com/podd-project/podd/image/layers"
)

// progressInterval is how often containers/image reports on one layer: after every read. It reports reads that it
// skipped only once the layer is stored, and the goroutine that downloads one layer also stores those of others; with a
// longer interval a layer whose last bytes were not reported would look stalled while others are unpacked.
const progressInterval = time.Nanosecond

// transferJob is a reference to pull, and the variant to select if it names a list.
type transferJob struct {
	sys     *types.SystemContext
	ref     reference.Named
	variant map[string]string
	// corrupt are ids of layers, see Store.refetch.
	corrupt []string
}

// transfer copies job.ref into storage, in a pull's process. The manifest is fetched once: the image that passed the
// platform check is the image that is copied, even if the tag moves; that of a variant is fetched by digest.
func (w *worker) transfer(ctx context.Context, job transferJob, out *reporter) (Result, error) {
	remote, err := docker.NewReference(job.ref)
	if err != nil {
		return Result{}, err
	}
	source, err := remote.NewImageSource(ctx, job.sys)
	if err != nil {
		return Result{}, err
	}
	source = remember(source)
	opened := &openedReference{ImageReference: remote, source: source}
	defer opened.close()
	if err := checkSource(ctx, job.sys, source); err != nil {
		return Result{}, err
	}
	top, _, err := source.GetManifest(ctx, nil)
	if err != nil {
		return Result{}, err
	}
	pulledDigest, err := manifest.Digest(top)
	if err != nil {
		return Result{}, err
	}
	if err := out.send(pullReport{Kind: reportStage}); err != nil {
		return Result{}, err
	}
	policy, err := w.cfg.PolicyContext()
	if err != nil {
		return Result{}, err
	}
	copying := copyJob{sys: job.sys, policy: policy, from: opened, ref: job.ref, progress: newFetched(out)}
	if err := copying.selectVariant(ctx, source, job.variant); err != nil {
		return Result{}, err
	}
	if copying.lazy, err = w.addLayers(ctx, copying, source, job.corrupt); err != nil {
		return Result{}, errors.Join(err, copying.policy.Destroy())
	}
	stored, err := w.copy(ctx, copying)
	if err == nil {
		err = w.refetch(ctx, copying, stored, job.corrupt)
	}
	if err != nil {
		return Result{}, err
	}
	return Result{ID: stored.ID, Digest: pulledDigest}, nil
}

// openedReference is a reference whose source is already open.
type openedReference struct {
	types.ImageReference
	source types.ImageSource
	used   bool
}

// NewImageSource returns the open source, once; the caller closes it.
func (r *openedReference) NewImageSource(ctx context.Context, sys *types.SystemContext) (types.ImageSource, error) {
	if r.used {
		return r.ImageReference.NewImageSource(ctx, sys)
	}
	r.used = true
	return r.source, nil
}

// close closes the source if NewImageSource was not called.
func (r *openedReference) close() {
	if !r.used {
		_ = r.source.Close() // read only
	}
}

// copyJob is one image to copy into storage.
type copyJob struct {
	sys *types.SystemContext
	// policy is destroyed by Store.copy.
	policy *signature.PolicyContext
	from   types.ImageReference
	// variant is the image of the list that the pod's annotations select; nil for the one of this platform.
	variant *digest.Digest
	// ref is the name to store it under; without one, id is its id.
	ref      reference.Named
	id       string
	progress Progress
	// lazy are the ids of layers in the additional layer store that the image may have.
	lazy []string
}

// copy runs containers/image's copy into storage.
func (w *worker) copy(ctx context.Context, job copyJob) (*storage.Image, error) {
	defer func() { _ = job.policy.Destroy() }() // frees memory, cannot fail otherwise
	to, err := containersstorage.Transport.NewStoreReference(layers.WithLazy(w.storage, job.lazy), job.ref, job.id)
	if err != nil {
		return nil, err
	}
	reports := make(chan types.ProgressProperties)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { drain(reports, done, job.progress) })
	var resolved types.ImageReference
	_, err = copy.Image(ctx, job.policy, to, job.from, &copy.Options{
		SourceCtx:               job.sys,
		DestinationCtx:          w.systemContext(),
		Progress:                reports,
		ProgressInterval:        progressInterval,
		MaxParallelDownloads:    maxDownloads,
		ReportResolvedReference: &resolved,
	})
	close(done)
	wg.Wait()
	if err != nil {
		return nil, err
	}
	_, img, err := containersstorage.ResolveReference(resolved)
	return img, err
}

// drain forwards reports until done is closed.
func drain(reports <-chan types.ProgressProperties, done <-chan struct{}, p Progress) {
	for {
		select {
		case r := <-reports:
			p.Note(r)
		case <-done:
			return
		}
	}
}
