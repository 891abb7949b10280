package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"go.podman.io/storage"

	"github.com/podd-project/podd/image/registry"
	"github.com/podd-project/podd/image/worker"
)

// Allow returns an error unless pods of a namespace may use a stored image. The image may have been pulled for another
// namespace: once PolicyDir has a policy of any namespace, the policy that a pull for this namespace would need is
// applied to the signatures that were stored with the image, under each of its names; one that is accepted suffices.
// Images that were loaded from files are exempt, as from the policy of pulls.
//
// Errors: registry.ErrSignatureInvalid; errdefs.ErrNotFound; errdefs.ErrFailedPrecondition for a policy that cannot be
// read.
func (s *Store) Allow(ctx context.Context, id, namespace string) error {
	err := s.allow(ctx, id, namespace)
	if err == nil {
		return nil
	}
	text := fmt.Sprintf("image %s in namespace %q: %s", id, namespace, registry.Scrub(registry.Classify(err).Error(), nil))
	if errors.Is(registry.Classify(err), registry.ErrSignatureInvalid) {
		text += "; signatures are stored by a pull: if the image was signed later, pull it again (imagePullPolicy: Always)"
	}
	return registry.NewError(text, registry.KindOf(err), err)
}

func (s *Store) allow(ctx context.Context, id, namespace string) error {
	node := s.cfg()
	separate, err := node.SeparatesNamespaces()
	if err != nil {
		return fmt.Errorf("%w: policy_dir: %w", errdefs.ErrFailedPrecondition, err)
	}
	if !separate { // the pull has applied the only policy
		return nil
	}
	cfg, err := node.ForNamespace(namespace)
	if err != nil {
		return err
	}
	e := s.index.Load().byID[id]
	if e == nil {
		return notFound(id)
	}
	names := slices.Concat(e.Tags, e.Digests)
	if slices.ContainsFunc(names, func(name string) bool { return cfg.AcceptsUnsigned(ctx, name) }) {
		return nil
	}
	if s.preloaded.has(id) {
		return nil
	}
	loaded, err := isLoaded(s.storage, id)
	if err != nil || loaded {
		return err
	}
	return s.allowSigned(ctx, cfg, id, names)
}

// allowSigned makes a pull's process verify the stored signatures of an image, unless it has done that for these files.
func (s *Store) allowSigned(ctx context.Context, cfg Config, id string, names []string) error {
	key := verdictKey{id, strings.Join(names, "\n"), cfg.PolicyStamp()}
	if s.allowed.has(key) {
		return nil
	}
	select {
	case s.verifying <- struct{}{}:
		defer func() { <-s.verifying }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c, err := cfg.WithoutRegistry(s.layout.Temp())
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := s.runWorker(ctx, worker.Job{Verify: id, Names: names}, c, newProgress(id)); err != nil {
		return err
	}
	s.allowed.add(key)
	return nil
}

// maxVerifying bounds the processes that verify stored signatures at the same time. More wait.
const maxVerifying = 4

// loadedKey marks an image that was loaded from a file, in its data in storage. A later pull of it keeps the mark.
const loadedKey = "podd-loaded"

func markLoaded(in storage.Store, id string) error {
	if err := in.SetImageBigData(id, loadedKey, []byte("1"), nil); err != nil {
		return fmt.Errorf("record that image %s was loaded: %w", id, err)
	}
	return nil
}

// isLoaded reports whether an image has the mark.
func isLoaded(in storage.Store, id string) (bool, error) {
	keys, err := in.ListImageBigData(id)
	if err != nil {
		return false, fmt.Errorf("look up image %s: %w", id, err)
	}
	return slices.Contains(keys, loadedKey), nil
}

// verdicts are which images a policy has accepted, with their signatures.
type verdicts struct {
	mu       sync.Mutex
	accepted map[verdictKey]struct{}
}

// verdictKey is an image, its names, and the stamp of the policy and of the keys that accepted it.
type verdictKey struct{ id, names, policy string }

// maxVerdicts bounds their memory.
const maxVerdicts = 4096

func (v *verdicts) has(key verdictKey) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, ok := v.accepted[key]
	return ok
}

func (v *verdicts) add(key verdictKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.accepted == nil || len(v.accepted) >= maxVerdicts {
		v.accepted = map[verdictKey]struct{}{}
	}
	v.accepted[key] = struct{}{}
}
