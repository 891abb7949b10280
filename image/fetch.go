package image

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/storage"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/image/registry"
	"github.com/podd-project/podd/image/worker"
)

// fetch pulls one fully qualified reference from its mirrors and its registry, in turn: a mirror may have only a part
// of an image. Layers that were stored are not fetched again.
func (s *Store) fetch(ctx context.Context, ref reference.Named, r PullRequest, p *progress) (*Image, error) {
	cfg, err := s.cfg().ForNamespace(r.Namespace)
	if err != nil {
		return nil, err
	}
	sources, err := cfg.Sources(ref)
	if err != nil {
		return nil, err
	}
	var failed []string
	for i, from := range sources {
		c, err := cfg.ForPull(ctx, ref, from, r.Auth, s.layout.Temp())
		if err != nil {
			return nil, err
		}
		img, err := s.fetchFrom(ctx, c, ref, r, p)
		if err == nil || i == len(sources)-1 || ctx.Err() != nil || errdefs.IsResourceExhausted(err) {
			return img, registry.AfterMirrors(err, failed)
		}
		s.log.WithField("image", ref).WithField("source", from.Reference).
			WithField("reason", registry.Scrub(err.Error(), r.Auth)).Info("failed to pull from a mirror, trying the next source")
		failed = append(failed, fmt.Sprintf("%s: %v", from.Reference, err))
		p.restart()
	}
	return nil, fmt.Errorf("no source of %s", ref)
}

// fetchFrom pulls from the source of c, which it closes, and aborts if the transfer stalls.
func (s *Store) fetchFrom(
	ctx context.Context, c *registry.PullConfig, ref reference.Named, r PullRequest, p *progress,
) (*Image, error) {
	defer c.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	wg.Go(func() { stallWatch{s.cfg().PullProgressTimeout, s.cfg().PullMinRate}.run(ctx, p, cancel) })

	img, err := untilUndisturbed(ctx, &s.removals, p, func() (*Image, error) { return s.fetchConfined(ctx, c, ref, r, p) })
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, registry.ErrStalled) {
		// The library's error is "context canceled", which would look like the caller's cancellation.
		return nil, fmt.Errorf("%w (less than %d bytes in %v)", registry.ErrStalled,
			stallWatch{s.cfg().PullProgressTimeout, s.cfg().PullMinRate}.enough(), s.cfg().PullProgressTimeout)
	}
	return img, err
}

// maxTries bounds how often a pull is begun because images were removed that have the layers it found in the store.
const maxTries = 3

// removals counts removals of layers.
type removals struct{ begun, ended atomic.Uint64 }

// untilUndisturbed runs fetch, and again after an error that such a removal may have caused.
func untilUndisturbed(
	ctx context.Context, r *removals, p *progress, fetch func() (*Image, error),
) (*Image, error) {
	for try := 1; ; try++ {
		before := r.ended.Load()
		img, err := fetch()
		hasKind := registry.HasKind(err) || errors.Is(err, ErrRegistryUnavailable) || errors.Is(err, ErrSignatureInvalid)
		if err == nil || hasKind || ctx.Err() != nil || try == maxTries || before == r.begun.Load() {
			return img, err
		}
		p.restart()
	}
}

// fetchConfined makes a pull's process copy ref into storage, unless it is there, and makes the image visible.
func (s *Store) fetchConfined(
	ctx context.Context, c *registry.PullConfig, ref reference.Named, r PullRequest, p *progress,
) (*Image, error) {
	if img, err := s.present(ctx, c, ref, r); img != nil || err != nil {
		return img, err
	}
	job := worker.Job{Ref: ref.String(), Auth: r.Auth, Annotations: r.Annotations, Corrupt: s.integrity.CorruptIDs()}
	result, err := s.runWorker(ctx, job, c, p)
	if errdefs.IsResourceExhausted(err) {
		err = errors.Join(err, s.removeUnused(time.Now(), 1))
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
	if err := s.repair(ctx, stored, c.Dir); err != nil {
		return nil, err
	}
	return s.register(stored, ref, canonical)
}

// register makes a copied image visible, also under its name by digest, which it keeps when the tag moves.
func (s *Store) register(stored *storage.Image, names ...reference.Named) (*Image, error) {
	if err := worker.CheckStored(s.storage, stored); err != nil {
		return nil, errors.Join(err, unregister(s.storage, stored, names))
	}
	var add []string
	for _, name := range names {
		add = append(add, name.String())
	}
	if err := s.storage.AddNames(stored.ID, add); err != nil {
		return nil, fmt.Errorf("name image %s: %w", stored.ID, err)
	}
	// Storage syncs the list, but not its new name: without this an acknowledged image could be lost with the power.
	if err := checkpoint.Sync(s.layout.ImageList()); err != nil {
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
func unregister(from storage.Store, stored *storage.Image, names []reference.Named) error {
	mine := map[string]bool{}
	var remove []string
	for _, name := range names {
		mine[name.String()] = true
		remove = append(remove, name.String())
	}
	img, err := from.Image(stored.ID)
	if err != nil {
		return fmt.Errorf("look up image %s: %w", stored.ID, err)
	}
	for _, name := range img.Names {
		if !mine[name] {
			return from.RemoveNames(stored.ID, remove)
		}
	}
	_, err = from.DeleteImage(stored.ID, true)
	return err
}
