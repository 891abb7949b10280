package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/network"
)

const (
	// collectRetry is how long garbage that could not be removed is let be, twice as long each time, up to collectRest.
	collectRetry = 10 * time.Second
	collectRest  = 10 * time.Minute
)

func (d Debt) err() error { return fmt.Errorf("%s %s: %s", d.What, d.ID, d.Error) }

// KeepClean frees what no record claims, until ctx ends: once at the start, then whenever a record turns out to be
// damaged, and again and again while something cannot be freed. It runs beside everything else.
func (e *Engine) KeepClean(ctx context.Context) {
	wait := time.Duration(0)
	for {
		err := e.Collect(ctx)
		if ctx.Err() != nil {
			return
		}
		var again <-chan time.Time
		if wait = min(max(2*wait, collectRetry), collectRest); err != nil {
			if len(*e.debts.Load()) > 0 {
				e.Log.WithError(err).WithField("again", wait.String()).Error("something on this machine belongs to no record and could not be removed yet")
			}
			again = time.After(wait)
		} else {
			wait = 0
		}
		select {
		case <-again:
		case <-e.kick:
		case <-ctx.Done():
			return
		}
	}
}

// collectSoon has KeepClean look again.
func (e *Engine) collectSoon() {
	select {
	case e.kick <- struct{}{}:
	default: // it will
	}
}

// Collect frees what no record claims: the leavings of a record that is damaged, or of a directory that vanished. It may
// run beside the making of pods: what is on the machine is listed first and claims are asked for afterwards, and whatever
// is new was claimed before it was made. errdefs.ErrUnavailable: a pod that was being attached to the network went first.
func (e *Engine) Collect(ctx context.Context) error {
	select {
	case <-e.loaded:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	chores, debts := e.chores(ctx)
	var mu sync.Mutex // guards debts
	var all work
	for id, kinds := range e.unclaimed(chores) {
		all.Go(func() {
			if what, err := e.free(ctx, id, kinds); err != nil {
				mu.Lock()
				defer mu.Unlock()
				debts = append(debts, Debt{What: what, ID: id, Error: err.Error()})
			}
		})
	}
	all.Wait()
	err := e.collectNetworks(ctx) // after the pods whose attachments are known
	if err != nil && !errdefs.IsUnavailable(err) {
		debts = append(debts, Debt{What: "CNI garbage collection", Error: err.Error()})
		err = nil
	}
	e.debts.Store(&debts)
	for _, d := range debts {
		err = errors.Join(err, d.err())
	}
	return err
}

// chores lists what is on the machine, by id, in the order in which it can go.
func (e *Engine) chores(ctx context.Context) (map[string][]garbageKind, []Debt) {
	chores := map[string][]garbageKind{}
	var debts []Debt
	for _, kind := range e.garbageKinds(ctx) {
		ids, err := kind.list()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			debts = append(debts, Debt{What: "list of each " + kind.what, Error: err.Error()})
		}
		for _, id := range ids {
			chores[id] = append(chores[id], kind)
		}
	}
	return chores, debts
}

// unclaimed leaves those chores whose id is in no record. A pod whose record cannot be read at present may have any
// container: as long as not even its directory can be listed, no container is garbage.
func (e *Engine) unclaimed(chores map[string][]garbageKind) map[string][]garbageKind {
	for _, u := range e.unread.list() {
		delete(chores, u.id())
		containers, err := checkpoint.List(filepath.Join(u.Path, containersDir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, id := range containers {
			delete(chores, id)
		}
	}
	for _, p := range e.store.podList() {
		delete(chores, p.ID)
	}
	for _, c := range e.store.containerList(nil) {
		delete(chores, c.ID)
	}
	return chores
}

// free frees what is left under one id, up to the first thing that cannot be: what follows may be in use by it.
func (e *Engine) free(ctx context.Context, id string, kinds []garbageKind) (what string, err error) {
	for _, kind := range kinds {
		e.Log.WithField("id", id).Warnf("%s belongs to no record, removing it", kind.what)
		ctx, cancel := context.WithTimeoutCause(ctx, e.cfg.UndoTimeout,
			fmt.Errorf("teardown took longer than %v: %w", e.cfg.UndoTimeout, context.DeadlineExceeded))
		err := kind.free(ctx, id)
		cancel()
		if err != nil {
			return kind.what, err
		}
	}
	return "", nil
}

// collectNetworks has the CNI plugins drop what they hold for pods that no record claims.
func (e *Engine) collectNetworks(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, e.cfg.UndoTimeout,
		fmt.Errorf("plugins took longer than %v: %w", e.cfg.UndoTimeout, context.DeadlineExceeded))
	defer cancel()
	return e.Network.GC(ctx, func() []string {
		var living []string
		for _, u := range e.unread.list() {
			living = append(living, u.Pod)
		}
		for _, p := range e.store.podList() {
			living = append(living, p.ID)
		}
		return living
	})
}

// The kinds of garbage.
const (
	whatContainer  = "container"
	whatCgroup     = "cgroup"
	whatMount      = "mount"
	whatRootfs     = "root filesystem"
	whatAttachment = "network attachment"
	whatNetns      = "network namespace"
	whatPodDir     = "pod directory"
)

// garbageKind is one kind of thing that podd leaves on a machine under the id of a pod or container.
type garbageKind struct {
	what string
	list func() ([]string, error)
	free func(ctx context.Context, id string) error
}

// garbageKinds are in the order in which they can go: processes, then what they use; addresses before the namespace that
// the plugins want to clean up in.
func (e *Engine) garbageKinds(ctx context.Context) []garbageKind {
	return []garbageKind{
		{whatMount, e.strayMounts, e.freeMounts}, // nothing else takes them off the directories that go with the container
		{whatContainer, func() ([]string, error) { return e.foundContainers(ctx) }, e.freeContainer},
		{whatCgroup, e.strayCgroups, e.freeCgroup},
		{whatRootfs, func() ([]string, error) { return e.Images.ContainersWithMounts(ctx) }, e.Images.Release},
		{whatAttachment, e.Network.Attachments, e.freeAttachment},
		{whatNetns, e.pinnedNetns, e.freeNetns},
		{whatPodDir, func() ([]string, error) { return names(filepath.Join(e.cfg.Run, "pods")) }, e.freePodDir},
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

// foundContainers lists the bundles, and what the handlers find that has none.
func (e *Engine) foundContainers(ctx context.Context) ([]string, error) {
	ids, err := names(filepath.Join(e.cfg.Run, "containers"))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	errs := []error{err}
	for _, rt := range e.Runtimes {
		if f, ok := rt.(Finder); ok {
			more, err := f.List(ctx)
			ids, errs = append(ids, more...), append(errs, err)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), errors.Join(errs...)
}

// freeContainer asks every handler: which one it was is in the record that is lost.
func (e *Engine) freeContainer(ctx context.Context, id string) error {
	var errs []error
	for _, name := range e.handlerNames() {
		if f, ok := e.Runtimes[name].(Finder); ok {
			errs = append(errs, f.Destroy(ctx, id))
			continue
		}
		errs = append(errs, e.Runtimes[name].Delete(ctx, id))
	}
	return errors.Join(errs...)
}

func (e *Engine) freeAttachment(ctx context.Context, id string) error {
	err := e.Network.Teardown(ctx, id)
	if errors.Is(err, network.ErrDamaged) {
		err = e.Network.Abandon(ctx, network.Request{PodID: id, Netns: filepath.Join(e.netnsDir(), id)})
	}
	return err
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
