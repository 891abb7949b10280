package image

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/errdefs"
	"go.podman.io/storage"

	"github.com/podd-project/podd/image/layers"
	"github.com/podd-project/podd/image/lazy"
	"github.com/podd-project/podd/image/rootfs"
)

// isLazy reports whether an image has layers in the additional layer store.
func (e *entry) isLazy() bool {
	return slices.ContainsFunc(e.lazy, func(l *layers.Lazy) bool { return l != nil })
}

// mountLazy mounts a filesystem of an image with layers in the additional layer store. If the store does not serve
// them, the image is hidden until it is pulled again, which then fetches these layers.
func (s *Store) mountLazy(ctx context.Context, e *entry, o rootfs.Overlay) error {
	err := s.lazy.Mount(ctx, e.ID, o, e.lazy)
	if gone, ok := errors.AsType[lazy.GoneError](err); ok {
		return s.hideLazy(e, gone)
	}
	return err
}

// hideLazy hides an image, by its highest layer in the additional layer store, so that other images with the layers
// below stay, and returns an error for the caller.
func (s *Store) hideLazy(e *entry, reason error) error {
	top := e.layers[slices.IndexFunc(e.lazy, func(l *layers.Lazy) bool { return l != nil })]
	return errors.Join(fmt.Errorf("image %s was pulled lazily: %w: pull it again, podd then fetches it as a whole: %w",
		e.ID, reason, errdefs.ErrFailedPrecondition), s.integrity.Mark(top, reason.Error()))
}

// verifyLazy adds the layers to found that the additional layer store does not serve. With mark their images are
// hidden. It fails if the store does not answer.
func (s *Store) verifyLazy(ctx context.Context, found map[string]string, mark bool) error {
	gone, seen := map[string]string{}, map[string]bool{}
	for _, e := range s.index.Load().byID {
		ask := map[string]layers.Lazy{}
		for i, l := range e.lazy {
			if id := e.layers[i]; l != nil && !seen[id] {
				seen[id], ask[id] = true, *l
			}
		}
		if len(ask) == 0 {
			continue
		}
		some, err := s.lazy.Check(ctx, e.ID, ask)
		if err != nil {
			return err
		}
		maps.Copy(gone, some)
	}
	maps.Copy(found, gone)
	for id, reason := range gone {
		if !mark {
			break
		}
		if err := s.integrity.Mark(id, reason); err != nil {
			return err
		}
	}
	return nil
}

// releaseLazy releases the layers of a removed image in the additional layer store that no other image has.
func (s *Store) releaseLazy(e *entry) {
	for i, l := range e.lazy {
		if l == nil {
			continue
		}
		if _, err := s.storage.Layer(e.layers[i]); errors.Is(err, storage.ErrLayerUnknown) {
			s.lazy.Release(*l)
		}
	}
}
