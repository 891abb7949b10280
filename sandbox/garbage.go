package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// collectGarbage frees what no record claims: the leavings of a record that was quarantined, or of a directory
// that vanished. It runs before the engine serves, so everything unclaimed is nobody's.
func (e *Engine) collectGarbage(ctx context.Context) error {
	claimed := map[string]bool{}
	for _, p := range e.store.podList() {
		claimed[p.ID] = true
	}
	for _, c := range e.store.containerList(nil) {
		claimed[c.ID] = true
	}
	errs := []error{e.collectNetworks(ctx)} // before the namespaces that the plugins want to clean up in
	for _, kind := range e.garbageKinds(ctx) {
		ids, err := kind.list()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("list %s: %w", kind.what, err))
		}
		for _, id := range slices.DeleteFunc(ids, func(id string) bool { return claimed[id] }) {
			e.Log.WithField("id", id).Warnf("%s belongs to no record, removing it", kind.what)
			if err := e.undo(ctx, func(ctx context.Context) error { return kind.free(ctx, id) }); err != nil {
				errs = append(errs, fmt.Errorf("%s %s: %w", kind.what, id, err))
			}
		}
	}
	return errors.Join(errs...)
}

// collectNetworks frees the addresses of pods that no record claims. It must not run beside the creation of pods:
// the plugins would take it for garbage.
func (e *Engine) collectNetworks(ctx context.Context) error {
	var keep []string
	for _, p := range e.store.podList() {
		keep = append(keep, p.ID)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, recoverDeadline, fmt.Errorf("plugins took longer than %v: %w", recoverDeadline, context.DeadlineExceeded))
	defer cancel()
	return e.Network.GC(ctx, keep)
}

// garbageKind is one kind of thing that podd leaves on a machine under the id of a pod or container.
type garbageKind struct {
	what string
	list func() ([]string, error)
	free func(ctx context.Context, id string) error
}

// garbageKinds are in the order in which they can go: processes, then what they use.
func (e *Engine) garbageKinds(ctx context.Context) []garbageKind {
	return []garbageKind{
		{"container", func() ([]string, error) { return names(filepath.Join(e.cfg.Run, "containers")) }, e.freeContainer},
		{"root filesystem", func() ([]string, error) { return e.Images.Held(ctx) }, e.Images.Release},
		{"network namespace", e.pinnedNetns, e.freeNetns},
		{"pod directory", func() ([]string, error) { return names(filepath.Join(e.cfg.Run, "pods")) }, e.freePodDir},
	}
}

func names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	var ids []string
	for _, entry := range entries {
		ids = append(ids, entry.Name())
	}
	return ids, err
}

// freeContainer asks every handler: which one it was is in the record that is lost.
func (e *Engine) freeContainer(ctx context.Context, id string) error {
	var errs []error
	for _, name := range e.handlerNames() {
		errs = append(errs, e.Runtimes[name].Delete(ctx, id))
	}
	return errors.Join(errs...)
}

func (e *Engine) pinnedNetns() ([]string, error) {
	paths, err := e.Namespaces.Pinned(e.netnsDir())
	for i, path := range paths {
		paths[i] = filepath.Base(path)
	}
	return paths, err
}

func (e *Engine) freeNetns(ctx context.Context, id string) error {
	return e.Namespaces.Unpin(ctx, filepath.Join(e.netnsDir(), id))
}

func (e *Engine) freePodDir(ctx context.Context, id string) error {
	pins := e.pins(id)
	return errors.Join(
		e.Namespaces.Unpin(ctx, pins.ipc, pins.uts, pins.user),
		e.shm.Unmount(ctx, e.podFile(id, shmDir)),
		e.removePodRunDir(id))
}
