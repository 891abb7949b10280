package garbage

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/podd-project/podd/sandbox/record"
)

// Finder is an oci.Runtime that can find containers, or parts of them, whose records are lost.
type Finder interface {
	// List returns the ids of all containers.
	List(ctx context.Context) ([]string, error)
	// Destroy is Delete, and also ends what Delete does not look for.
	Destroy(ctx context.Context, id string) error
	// RemoveLostCommands removes leftovers of commands of a stopped podd in containers that exist.
	RemoveLostCommands(ctx context.Context) error
}

// RemoveLostCommands does that in all handlers.
func (m *Machine) RemoveLostCommands(ctx context.Context) error {
	var errs []error
	for _, rt := range m.Handlers.Current().Runtimes {
		if f, ok := rt.(Finder); ok {
			errs = append(errs, f.RemoveLostCommands(ctx))
		}
	}
	return errors.Join(errs...)
}

// containers lists the bundles, and the containers without one that the handlers find.
func (m *Machine) containers(ctx context.Context) ([]string, error) {
	ids, err := record.Names(m.Paths.Bundles())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	errs := []error{err}
	for _, rt := range m.Handlers.Current().Runtimes {
		if f, ok := rt.(Finder); ok {
			more, err := f.List(ctx)
			ids, errs = append(ids, more...), append(errs, err)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), errors.Join(errs...)
}

// freeContainer calls every handler: the record that names the right one is lost.
func (m *Machine) freeContainer(ctx context.Context, id string) error {
	var errs []error
	g := m.Handlers.Current()
	for _, name := range g.Names() {
		if f, ok := g.Runtimes[name].(Finder); ok {
			errs = append(errs, f.Destroy(ctx, id))
			continue
		}
		errs = append(errs, g.Runtimes[name].Delete(ctx, id))
	}
	return errors.Join(errs...)
}
