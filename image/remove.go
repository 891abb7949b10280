package image

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"go.podman.io/storage"
)

// maxNamed bounds how many containers an error names.
const maxNamed = 5

// Remove deletes the image that ref resolves to, with all of its names, as CRI requires: "If the image has multiple
// tags, all are removed". An absent image is not an error.
//
// Errors: errdefs.ErrFailedPrecondition, naming the containers, if any has a root filesystem or volume of the image;
// errdefs.ErrInvalidArgument for a malformed reference.
func (s *Store) Remove(ctx context.Context, ref string) error {
	ix := s.index.Load()
	e, err := s.findIn(ix, ref)
	if errdefs.IsNotFound(err) {
		e, err = s.findIn(ix.corrupt, ref)
	}
	switch {
	case errdefs.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	users, other := s.mounts.Users.BeginRemoval(e.ID)
	switch {
	case other != nil:
		select {
		case <-other:
			return s.Remove(ctx, ref) // gone now, unless that removal failed
		case <-ctx.Done():
			return fmt.Errorf("remove image %s: wait for another removal: %w", ref, context.Cause(ctx))
		}
	case len(users) > 0:
		return fmt.Errorf("remove image %s: %w", ref, inUse(users))
	}
	defer s.mounts.Users.EndRemoval(e.ID)
	if err := s.remove(e.ID); err != nil {
		return fmt.Errorf("remove image %s: %w", ref, err)
	}
	s.releaseLazy(e)
	s.log.WithField("image", ref).WithField("id", e.ID).Info("removed image")
	return nil
}

// removeHidden removes the hidden images that no pull would replace, and no container uses: those that were pulled
// lazily and have lost their names to the same image as a whole, and those whose layers are not those of their id,
// which the image of that id needs.
func (s *Store) removeHidden(ctx context.Context) {
	for id, e := range s.index.Load().corrupt.byID {
		isReplaced := e.isLazy() && len(e.names) == 0
		if !isReplaced && e.contradicts == nil || len(s.mounts.Users.Of(id)) > 0 {
			continue
		}
		if err := s.Remove(ctx, id); err != nil && ctx.Err() == nil {
			s.log.WithError(err).WithField("image", id).Warn("failed to remove a hidden image")
		}
	}
}

func (s *Store) remove(id string) error {
	err := s.release(func() error {
		_, err := s.storage.DeleteImage(id, true)
		if err != nil && !errors.Is(err, storage.ErrNotAnImage) && !errors.Is(err, storage.ErrImageUnknown) {
			return err
		}
		return s.integrity.ForgetDeleted()
	})
	if errors.Is(err, storage.ErrImageUsedByContainer) { // a container of another program in our directory
		err = fmt.Errorf("%w: %w", err, errdefs.ErrFailedPrecondition)
	}
	return errors.Join(err, s.refresh()) // also after an error: part of it may be gone
}

func inUse(containers []string) error {
	more := ""
	if n := len(containers) - maxNamed; n > 0 {
		containers, more = containers[:maxNamed], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Errorf("in use by containers %s%s: %w",
		strings.Join(containers, ", "), more, errdefs.ErrFailedPrecondition)
}
