package image

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/copy"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/signature"
	containersstorage "go.podman.io/image/v5/storage"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage"

	"github.com/podd-project/podd/image/layers"
)

// progressInterval is how often containers/image reports on one layer: after every read. It reports reads that it
// skipped only once the layer is stored, and the goroutine that downloads one layer also stores those of others; with a
// longer interval a layer whose last bytes were not reported would look stalled while others are unpacked.
const progressInterval = time.Nanosecond

// fetch pulls one fully qualified reference from its registry or a mirror, and aborts if the transfer stalls.
func (s *Store) fetch(ctx context.Context, ref reference.Named, r PullRequest, p *progress) (*Image, error) {
	c, err := s.configurePull(ctx, ref, r)
	if err != nil {
		return nil, err
	}
	defer c.close()
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	wg.Go(func() { stallWatch{s.cfg().PullProgressTimeout, s.cfg().PullMinRate}.run(ctx, p, cancel) })

	img, err := s.fetchConfined(ctx, c, ref, r, p)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errStalled) {
		// The library's error is "context canceled", which would look like the caller's cancellation.
		return nil, fmt.Errorf("%w (less than %d bytes in %v)", errStalled,
			stallWatch{s.cfg().PullProgressTimeout, s.cfg().PullMinRate}.enough(), s.cfg().PullProgressTimeout)
	}
	return img, err
}

// fetchConfined has a process of its own copy ref into storage, unless it is there, and makes the image visible.
func (s *Store) fetchConfined(
	ctx context.Context, c *pullConfig, ref reference.Named, r PullRequest, p *progress,
) (*Image, error) {
	if img, err := s.present(ctx, c, ref, r); img != nil || err != nil {
		return img, err
	}
	job := pullJob{Ref: ref.String(), Auth: r.Auth, Annotations: r.Annotations, Corrupt: s.integrity.corruptIDs()}
	result, err := s.pullInChild(ctx, job, c, p)
	if errdefs.IsResourceExhausted(err) {
		err = errors.Join(err, s.removeUnusedLayers())
	}
	if err != nil {
		return nil, err
	}
	canonical, err := reference.WithDigest(reference.TrimNamed(ref), result.Digest)
	if err != nil {
		return nil, err
	}
	stored, err := s.storage.Image(result.ID)
	if err != nil {
		return nil, fmt.Errorf("look up the pulled image: %w", err)
	}
	if err := s.repair(ctx, stored, c.dir); err != nil {
		return nil, err
	}
	return s.register(stored, ref, canonical)
}

// removeUnusedLayers deletes layers that no image has, as a failed pull leaves them for the next attempt, unless
// another pull is in progress, which may be about to use them.
func (s *Store) removeUnusedLayers() error {
	for len(s.Pulls()) <= 1 {
		stored, err := s.storage.Layers()
		if err != nil {
			return fmt.Errorf("list layers: %w", err)
		}
		images, err := s.storage.Images()
		if err != nil {
			return fmt.Errorf("list images: %w", err)
		}
		used := map[string]bool{}
		for _, l := range stored {
			used[l.Parent] = true
		}
		for _, img := range images {
			used[img.TopLayer] = true
		}
		removed := false
		for _, l := range stored {
			if used[l.ID] {
				continue
			}
			if err := s.storage.DeleteLayer(l.ID); err != nil {
				return fmt.Errorf("delete layer %s: %w", l.ID, err)
			}
			removed = true
		}
		if !removed { // their parents are unused now
			break
		}
	}
	return nil
}

// transferJob is a reference to pull, and the variant to select if it names a list.
type transferJob struct {
	sys     *types.SystemContext
	ref     reference.Named
	variant map[string]string
	// corrupt are ids of layers, see Store.refetch.
	corrupt []string
}

// transfer copies job.ref into storage, in a pull's process. The manifest is fetched once: the image that passed the
// platform check is the image that is copied, even if the tag moves meanwhile; that of a variant is fetched by digest.
func (s *Store) transfer(ctx context.Context, job transferJob, out *reporter) (pulled, error) {
	remote, err := docker.NewReference(job.ref)
	if err != nil {
		return pulled{}, err
	}
	source, err := remote.NewImageSource(ctx, job.sys)
	if err != nil {
		return pulled{}, err
	}
	source = remember(source)
	opened := &openedReference{ImageReference: remote, source: source}
	defer opened.close()
	if err := checkSource(ctx, job.sys, source); err != nil {
		return pulled{}, err
	}
	top, _, err := source.GetManifest(ctx, nil)
	if err != nil {
		return pulled{}, err
	}
	pulledDigest, err := manifest.Digest(top)
	if err != nil {
		return pulled{}, err
	}
	if err := out.send(pullReport{Kind: reportStage}); err != nil {
		return pulled{}, err
	}
	policy, err := s.cfg().policyContext()
	if err != nil {
		return pulled{}, err
	}
	copying := copyJob{sys: job.sys, policy: policy, from: opened, ref: job.ref, progress: newFetched(out)}
	if err := copying.selectVariant(ctx, source, job.variant); err != nil {
		return pulled{}, err
	}
	if copying.lazy, err = s.addLayers(ctx, copying, source, job.corrupt); err != nil {
		return pulled{}, errors.Join(err, copying.policy.Destroy())
	}
	stored, err := s.copy(ctx, copying)
	if err == nil {
		err = s.refetch(ctx, copying, stored, job.corrupt)
	}
	if err != nil {
		return pulled{}, err
	}
	return pulled{ID: stored.ID, Digest: pulledDigest}, nil
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
	progress progressSink
	// lazy are the ids of layers in the additional layer store that the image may have.
	lazy []string
}

// copy runs containers/image's copy into storage.
func (s *Store) copy(ctx context.Context, job copyJob) (*storage.Image, error) {
	defer func() { _ = job.policy.Destroy() }() // frees memory, cannot fail otherwise
	to, err := containersstorage.Transport.NewStoreReference(layers.WithLazy(s.storage, job.lazy), job.ref, job.id)
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
		DestinationCtx:          s.systemContext(),
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
func drain(reports <-chan types.ProgressProperties, done <-chan struct{}, p progressSink) {
	for {
		select {
		case r := <-reports:
			p.note(r)
		case <-done:
			return
		}
	}
}

// register makes a copied image visible, also under its name by digest, which it keeps when the tag moves.
func (s *Store) register(stored *storage.Image, names ...reference.Named) (*Image, error) {
	if err := s.checkStored(stored.ID); err != nil {
		return nil, errors.Join(err, s.unregister(stored, names))
	}
	var add []string
	for _, name := range names {
		add = append(add, name.String())
	}
	if err := s.storage.AddNames(stored.ID, add); err != nil {
		return nil, fmt.Errorf("name image %s: %w", stored.ID, err)
	}
	if err := s.refresh(); err != nil {
		return nil, err
	}
	e, ok := s.index.Load().byID[stored.ID]
	if !ok {
		return nil, fmt.Errorf("image %s was stored but cannot be read", stored.ID)
	}
	return e.Image, nil
}

// unregister removes names from an image that must not be used, and the image if it has no other name.
func (s *Store) unregister(stored *storage.Image, names []reference.Named) error {
	mine := map[string]bool{}
	var remove []string
	for _, name := range names {
		mine[name.String()] = true
		remove = append(remove, name.String())
	}
	img, err := s.storage.Image(stored.ID)
	if err != nil {
		return fmt.Errorf("look up image %s: %w", stored.ID, err)
	}
	for _, name := range img.Names {
		if !mine[name] {
			return s.storage.RemoveNames(stored.ID, remove)
		}
	}
	_, err = s.storage.DeleteImage(stored.ID, true)
	return err
}
