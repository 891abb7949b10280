package image

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"go.podman.io/image/v5/docker/reference"
)

// List returns all images, oldest first. It answers from memory.
func (s *Store) List(context.Context) ([]*Image, error) {
	return slices.Clone(s.index.Load().images), nil
}

// Resolve finds an image by name, name:tag, name@digest, id, sha256:id or the beginning of an id that no other
// image shares (4 hex digits or more). A name without tag means :latest; a short name is looked up as a pull would.
// It answers from memory, but for short names, whose aliases are read from a file.
//
// Errors: errdefs.ErrNotFound; errdefs.ErrInvalidArgument for what is no reference, or an ambiguous id.
func (s *Store) Resolve(_ context.Context, ref string) (*Image, error) {
	e, err := s.find(ref)
	if err != nil {
		return nil, err
	}
	return e.Image, nil
}

// minSureID is how many hex digits are taken for an id before they are taken for a name, if there is such an id: as many
// as tools show. Fewer are a name first, as names like "cafe" exist.
const minSureID = 12

// find is Resolve for the store's own use.
func (s *Store) find(ref string) (*entry, error) {
	return s.findIn(s.index.Load(), ref)
}

func (s *Store) findIn(ix *index, ref string) (*entry, error) {
	hex, full, isID := idPrefix(ref)
	if len(hex) >= minSureID {
		if e, err := ix.id(hex); e != nil || err != nil || full {
			return orNotFound(e, err, ref)
		}
	}
	refs, err := s.localCandidates(ref)
	if err == nil {
		if e := ix.name(refs); e != nil {
			return e, nil
		}
	}
	if isID {
		e, err := ix.id(hex)
		return orNotFound(e, err, ref)
	}
	return orNotFound(nil, err, ref)
}

// found makes an absent image an error.
func orNotFound(e *entry, err error, ref string) (*entry, error) {
	if e == nil && err == nil {
		err = notFound(ref)
	}
	return e, err
}

func notFound(ref string) error {
	return fmt.Errorf("image %q: %w", ref, errdefs.ErrNotFound)
}

// localCandidates is candidates, without touching registries.conf for a name that is complete.
func (s *Store) localCandidates(ref string) ([]reference.Named, error) {
	named, short, err := parseReference(ref)
	if err != nil || !short {
		return []reference.Named{named}, err
	}
	return candidates(s.systemContext(), ref)
}
