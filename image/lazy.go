package image

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	"go.podman.io/storage"

	"github.com/podd-project/podd/image/layers"
	"github.com/podd-project/podd/image/rootfs"
)

// maxUnused bounds the layers that wait to be released in the additional layer store.
const maxUnused = 256

// isLazy reports whether an image has layers in the additional layer store.
func (e *entry) isLazy() bool {
	return slices.ContainsFunc(e.lazy, func(l *layers.Lazy) bool { return l != nil })
}

// readLazy returns what is stored of a layer in the additional layer store, nil for other layers.
func (s *Store) readLazy(l *storage.Layer) (*layers.Lazy, error) {
	if l.TOCDigest == "" || l.UncompressedDigest != "" {
		return nil, nil
	}
	return layers.ReadLazy(s.layout.LayerFiles(l.ID))
}

// mountLazy mounts a filesystem of an image with layers in the additional layer store. If the store answers that it
// does not have them, the image is hidden until it is pulled again, which then fetches these layers. If the store
// does not answer, the error is errdefs.ErrUnavailable.
func (s *Store) mountLazy(ctx context.Context, e *entry, o rootfs.Overlay) error {
	if o.ShiftsIDs() {
		return s.hideLazy(e, errors.New("the files of an additional layer store cannot be used in a user namespace"))
	}
	if s.cfg().AdditionalLayerStore == "" {
		return s.hideLazy(e, errors.New("its files are in a store of layers, and additional_layer_store is not set"))
	}
	answers, err := s.askStore(ctx, storeJob{Root: s.cfg().AdditionalLayerStore, Mount: &storeMount{
		Dir: o.Dir, Lowers: e.lowers, Lazy: e.lazy, Writable: o.Writable, Label: o.Label,
	}})
	switch {
	case errors.Is(err, errStoreHangs):
		return storeUnavailable(e.ID, err)
	case err != nil:
		return err
	case len(answers) != 1:
		return errors.New("the process that mounts layers of the additional layer store ended without an answer")
	case answers[0].Gone:
		return s.hideLazy(e, errors.New(notServed(answers[0].Error)))
	case answers[0].Unavailable:
		return storeUnavailable(e.ID, errors.New(answers[0].Error))
	case answers[0].Error != "":
		return errors.New(answers[0].Error)
	}
	return nil
}

// notServed is why a layer counts as corrupt.
func notServed(reason string) string {
	return "the additional layer store does not serve it: " + reason
}

// storeUnavailable is an error for an image whose store may serve it later.
func storeUnavailable(image string, reason error) error {
	return fmt.Errorf("image %s was pulled lazily, and the additional layer store does not answer: %w: start the "+
		"store; if it is gone for good, unset additional_layer_store, reload podd, try again and pull the image: %w",
		image, reason, errdefs.ErrUnavailable)
}

// hideLazy hides an image, by its highest layer in the additional layer store, so that other images with the layers
// below stay, and returns an error for the caller.
func (s *Store) hideLazy(e *entry, reason error) error {
	top := e.layers[slices.IndexFunc(e.lazy, func(l *layers.Lazy) bool { return l != nil })]
	if _, err := s.integrity.markCorrupt(top, s.integrity.version(top), reason.Error()); err != nil {
		return err
	}
	s.log.WithFields(logrus.Fields{"image": e.ID, "names": e.names}).WithError(reason).
		Warn("image with layers in the additional layer store is hidden until it is pulled again, as a whole")
	return errors.Join(fmt.Errorf("image %s was pulled lazily: %w: pull it again, podd then fetches it as a whole: %w",
		e.ID, reason, errdefs.ErrFailedPrecondition), s.refresh())
}

// verifyLazy adds the layers to found that the additional layer store does not serve. With mark their images are
// hidden.
func (s *Store) verifyLazy(ctx context.Context, found map[string]string, mark bool) error {
	gone, err := s.checkLazy(ctx)
	if err != nil {
		return err
	}
	for id, reason := range gone {
		found[id] = reason
		if mark {
			if err := s.markCorrupt(id, s.integrity.version(id), reason); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkLazy finds layers that the additional layer store answers not to have, of all images, with the reason. It fails
// if the store does not answer.
func (s *Store) checkLazy(ctx context.Context) (map[string]string, error) {
	found, seen := map[string]string{}, map[string]bool{}
	for _, e := range s.index.Load().byID {
		var ids []string
		job := storeJob{Root: s.cfg().AdditionalLayerStore}
		for i, l := range e.lazy {
			if l != nil && !seen[e.layers[i]] {
				seen[e.layers[i]] = true
				ids, job.Check = append(ids, e.layers[i]), append(job.Check, *l)
			}
		}
		if len(ids) == 0 {
			continue
		}
		if job.Root == "" {
			for _, id := range ids {
				found[id] = notServed("additional_layer_store is not set")
			}
			continue
		}
		if err := s.checkLayers(ctx, e.ID, job, ids, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// checkLayers checks layers of one image, with these ids.
func (s *Store) checkLayers(
	ctx context.Context, image string, job storeJob, ids []string, found map[string]string,
) error {
	answers, err := s.askStore(ctx, job)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for i, a := range answers[:min(len(answers), len(ids))] {
		switch {
		case a.Gone:
			found[ids[i]] = notServed(a.Error)
		case a.Error != "" && err == nil:
			err = errors.New(a.Error)
		}
	}
	if err == nil && len(answers) < len(ids) {
		err = errors.New("the process that asks it ended without an answer")
	}
	if err != nil {
		return storeUnavailable(image, err)
	}
	return nil
}

// releaseLazy has the additional layer store told which layers of a removed image are not used any more.
func (s *Store) releaseLazy(e *entry) {
	for i, l := range e.lazy {
		if l == nil {
			continue
		}
		if _, err := s.storage.Layer(e.layers[i]); errors.Is(err, storage.ErrLayerUnknown) {
			select {
			case s.unused <- *l:
			default: // the store keeps it until it ends
			}
		}
	}
}

// releaseUnused tells the additional layer store which layers are not used any more, until ctx ends.
func (s *Store) releaseUnused(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case l := <-s.unused:
			root := s.cfg().AdditionalLayerStore
			if root == "" {
				continue
			}
			if _, err := s.askStore(ctx, storeJob{Root: root, Release: []layers.Lazy{l}}); err != nil {
				s.log.WithError(err).Debug("failed to tell the additional layer store that a layer is not used any more")
			}
		}
	}
}

// removeReplaced removes hidden images that were pulled lazily, have lost their names to the same image as a whole, and
// are used by no container.
func (s *Store) removeReplaced(ctx context.Context) {
	for id, e := range s.index.Load().corrupt.byID {
		if len(e.names) > 0 || !e.isLazy() || len(s.mounts.Users.Of(id)) > 0 {
			continue
		}
		if err := s.Remove(ctx, id); err != nil && ctx.Err() == nil {
			s.log.WithError(err).WithField("image", id).Warn("failed to remove an image that was pulled again")
		}
	}
}
