package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	containersstorage "go.podman.io/image/v5/storage"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/copy"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	containersimage "go.podman.io/image/v5/image"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage"

	"github.com/podd-project/podd/image/layers"
	"github.com/podd-project/podd/image/registry"
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

// transfer copies job.ref into storage, in a pull's process. Each manifest is fetched once: the image that was checked
// is the image that is copied, even if the tag moves.
func (w *worker) transfer(ctx context.Context, job transferJob, out *reporter) (Result, error) {
	remote, err := docker.NewReference(job.ref)
	if err != nil {
		return Result{}, err
	}
	source, err := remote.NewImageSource(ctx, job.sys)
	if err != nil {
		return Result{}, err
	}
	opened := &openedReference{ImageReference: remote, source: source}
	defer opened.close()
	img, err := chooseInstance(ctx, source, job.variant)
	if err != nil {
		return Result{}, err
	}
	if err := img.check(ctx, job.sys); err != nil {
		return Result{}, err
	}
	if err := out.send(pullReport{Kind: reportStage}); err != nil {
		return Result{}, err
	}
	if err := w.applyPolicy(ctx, source, img); err != nil {
		return Result{}, err
	}
	stored, err := w.ofArtifact(ctx, img, job.sys, out)
	if err != nil {
		return Result{}, err
	}
	copying := copyJob{
		sys: job.sys, from: opened, image: stored, progress: newFetched(out, stored),
		isVerified: !w.cfg.AcceptsUnsigned(ctx, job.ref.String()),
	}
	if copying.lazy, err = w.addLayers(ctx, copying, job.corrupt); err != nil {
		return Result{}, err
	}
	opened.source = stored
	// The library reads attachments from its own sources only, which do not have the image of an artifact.
	if !img.isArtifact && slices.ContainsFunc(signatureDirs, usesAttachments) {
		if copying.from, err = nameByDigest(job.ref, img.digest); err != nil {
			return Result{}, err
		}
	}
	copied, err := w.copy(ctx, copying)
	if err == nil {
		err = w.refetch(ctx, copying, copied, job.corrupt)
	}
	if err != nil {
		return Result{}, err
	}
	return Result{ID: copied.ID, Digest: digest.FromBytes(img.top)}, nil
}

// applyPolicy fails if the signature policy does not accept an image of the source. One of a list is accepted under the
// name of the list.
func (w *worker) applyPolicy(ctx context.Context, source types.ImageSource, img *instance) error {
	policy, err := w.cfg.PolicyContext()
	if err != nil {
		return err
	}
	defer func() { _ = policy.Destroy() }() // frees memory, cannot fail otherwise
	ok, err := policy.IsRunningImageAllowed(ctx, containersimage.UnparsedInstance(source, img.listed))
	switch {
	case ok:
		return nil
	case img.isVariant:
		return fmt.Errorf("image %s of the list, which the pod's annotations select: %w", img.digest, err)
	}
	return fmt.Errorf("image %s: %w", img.digest, err)
}

// nameByDigest names an image of a repository.
func nameByDigest(of reference.Named, image digest.Digest) (types.ImageReference, error) {
	named, err := reference.WithDigest(reference.TrimNamed(of), image)
	if err != nil {
		return nil, err
	}
	return docker.NewReference(named)
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

// copyJob is one image to copy into storage. The signature policy has accepted it.
type copyJob struct {
	sys      *types.SystemContext
	from     types.ImageReference
	image    *instance
	progress Progress
	// lazy are the ids of layers in the additional layer store that the image may have.
	lazy []string
	// isVerified is set if the policy has accepted the image for its signatures.
	isVerified bool
}

// copy runs containers/image's copy into storage. The image gets no name.
func (w *worker) copy(ctx context.Context, job copyJob) (*storage.Image, error) {
	policy, err := registry.AcceptAnything()
	if err != nil {
		return nil, err
	}
	defer func() { _ = policy.Destroy() }() // frees memory, cannot fail otherwise
	chain, _ := job.image.chain()
	store := layers.WithDecrypted(layers.WithLazy(w.storage, job.lazy), chain)
	to, err := containersstorage.Transport.NewStoreReference(store, nil, job.image.id)
	if err != nil {
		return nil, err
	}
	before, err := readSignatures(w.storage, job.image.id)
	if err != nil {
		return nil, err
	}
	reports := make(chan types.ProgressProperties)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { drain(reports, done, job.progress) })
	_, err = copy.Image(ctx, policy, to, job.from, &copy.Options{
		SourceCtx:            job.sys,
		DestinationCtx:       w.systemContext(),
		Progress:             reports,
		ProgressInterval:     progressInterval,
		MaxParallelDownloads: maxDownloads,
	})
	close(done)
	wg.Wait()
	if err == nil {
		err = errors.Join(job.image.keepManifests(w.storage), job.image.keepSignatures(w.storage, before, job.isVerified))
	}
	if err != nil {
		return nil, err
	}
	return w.storage.Image(job.image.id)
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
