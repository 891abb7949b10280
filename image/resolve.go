package image

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"go.podman.io/image/v5/docker/reference"

	"github.com/podd-project/podd/image/registry"
)

// List returns all images, oldest first, from memory.
func (s *Store) List(context.Context) ([]*Image, error) {
	return slices.Clone(s.index.Load().images), nil
}

// Resolve finds an image by name, name:tag, name@digest, id, sha256:id or a prefix of an id (4 hex digits or more) that
// no other image has. A name without tag means :latest; a short name is looked up as a pull would. It works from
// memory, except that the aliases of short names are read from a file.
//
// Errors: errdefs.ErrNotFound; errdefs.ErrInvalidArgument for a malformed reference or an ambiguous id.
func (s *Store) Resolve(_ context.Context, ref string) (*Image, error) {
	e, err := s.find(ref)
	if err != nil {
		return nil, err
	}
	return e.Image, nil
}

// minSureID is the number of hex digits from which on an id takes precedence over a name: as many as tools show. A
// shorter string is looked up as a name first, as names like "cafe" exist.
const minSureID = 12

// find is Resolve, for an entry.
func (s *Store) find(ref string) (*entry, error) {
	return s.findIn(s.index.Load(), ref)
}

func (s *Store) findIn(ix *index, ref string) (*entry, error) {
	hex, full, isID := registry.IDPrefix(ref)
	if len(hex) >= minSureID {
		if e, err := ix.id(hex); e != nil || err != nil || full {
			return orNotFound(e, err, ref)
		}
	}
	named, short, err := registry.ParseReference(ref)
	refs := []reference.Named{named}
	if err == nil && short {
		refs, err = s.cfg().Candidates(ref, s.layout.RunRoot)
	}
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

// orNotFound makes an absent image an error.
func orNotFound(e *entry, err error, ref string) (*entry, error) {
	if e == nil && err == nil {
		err = notFound(ref)
	}
	return e, err
}

func notFound(ref string) error {
	return fmt.Errorf("image %q: %w", ref, errdefs.ErrNotFound)
}
