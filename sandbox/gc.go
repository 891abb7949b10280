package sandbox

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/sandbox/layout"
	"github.com/podd-project/podd/sandbox/lifetime"
	"github.com/podd-project/podd/sandbox/namespaces"
)

const (
	// gcRetry is the delay after a collection that failed; it doubles up to gcMaxRetry.
	gcRetry    = 10 * time.Second
	gcMaxRetry = 10 * time.Minute
)

// janitor finds and frees what is on the machine or on disk and in no record.
type janitor struct {
	e *Engine
	// wake makes RunGC collect again; pending is what the last collection could not free.
	wake    chan struct{}
	pending atomic.Pointer[[]PendingCleanup]
	// quarantined are the damaged records that were moved away.
	quarantined quarantineList
}

func newJanitor(e *Engine) janitor { return janitor{e: e, wake: make(chan struct{}, 1)} }

// RunGC collects garbage until ctx ends: at the start, when a record is found damaged, and repeatedly while something
// cannot be freed. It runs concurrently with everything else.
func (e *Engine) RunGC(ctx context.Context) {
	wait := time.Duration(0)
	for {
		err := e.GC(ctx)
		if ctx.Err() != nil {
			return
		}
		var again <-chan time.Time
		if wait = min(max(2*wait, gcRetry), gcMaxRetry); err != nil {
			if len(*e.janitor.pending.Load()) > 0 {
				e.deps.Log.WithError(err).WithField("again", wait.String()).Error("failed to remove garbage, trying again")
			}
			again = time.After(wait)
		} else {
			wait = 0
		}
		select {
		case <-again:
		case <-e.janitor.wake:
		case <-ctx.Done():
			return
		}
	}
}

// wakeUp makes RunGC collect again.
func (j *janitor) wakeUp() {
	select {
	case j.wake <- struct{}{}:
	default: // it will
	}
}

// GC frees what is in no record: the resources of damaged records and of pods whose directory is gone. It may run while
// pods are created: the machine is listed before the records, and the record of a new pod is written before anything
// else of it exists. errdefs.ErrUnavailable: the network was not collected because a pod was being attached.
func (e *Engine) GC(ctx context.Context) error {
	select {
	case <-e.recovery.loaded:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	j := &e.janitor
	candidates, pending := j.candidates(ctx)
	var mu sync.Mutex // guards pending
	var all sync.WaitGroup
	for id, kinds := range j.unclaimed(candidates) {
		all.Go(func() {
			if what, err := j.free(ctx, id, kinds); err != nil {
				mu.Lock()
				defer mu.Unlock()
				pending = append(pending, PendingCleanup{What: what, ID: id, Error: err.Error()})
			}
		})
	}
	all.Wait()
	err := j.collectNetworks(ctx) // after the pods whose attachments are known
	if err != nil && !errdefs.IsUnavailable(err) {
		pending = append(pending, PendingCleanup{What: "CNI garbage collection", Error: err.Error()})
		err = nil
	}
	j.pending.Store(&pending)
	for _, p := range pending {
		err = errors.Join(err, p.err())
	}
	return err
}

// candidates lists the resources on the machine, by id, in the order in which they can be freed.
func (j *janitor) candidates(ctx context.Context) (map[string][]resourceKind, []PendingCleanup) {
	candidates := map[string][]resourceKind{}
	var pending []PendingCleanup
	for _, kind := range j.resourceKinds(ctx) {
		ids, err := kind.list()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			pending = append(pending, PendingCleanup{What: "list of each " + kind.what, Error: err.Error()})
		}
		for _, id := range ids {
			candidates[id] = append(candidates[id], kind)
		}
	}
	return candidates, pending
}

// unclaimed removes the candidates whose id is in a record. A pod whose record cannot be read may own any container: if
// its directory cannot be listed either, nothing is garbage.
func (j *janitor) unclaimed(candidates map[string][]resourceKind) map[string][]resourceKind {
	for _, u := range j.e.recovery.unread.list() {
		delete(candidates, u.id())
		containers, err := checkpoint.List(filepath.Join(u.Path, layout.Containers))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, id := range containers {
			delete(candidates, id)
		}
	}
	for _, p := range j.e.store.pods.List(nil) {
		delete(candidates, p.ID)
	}
	for _, c := range j.e.store.containers.List(nil) {
		delete(candidates, c.ID)
	}
	return candidates
}

// free frees what is left under one id, up to the first failure, because what follows may be in use by that.
func (j *janitor) free(ctx context.Context, id string, kinds []resourceKind) (what string, err error) {
	for _, kind := range kinds {
		j.e.deps.Log.WithField("id", id).Warnf("%s belongs to no record, removing it", kind.what)
		ctx, cancel := lifetime.WithTimeout(ctx, j.e.cfg.Load().UndoTimeout, "teardown took longer than %v")
		err := kind.free(ctx, id)
		cancel()
		if err != nil {
			return kind.what, err
		}
	}
	return "", nil
}

// collectNetworks makes the CNI plugins free what they hold for pods without a record.
func (j *janitor) collectNetworks(ctx context.Context) error {
	ctx, cancel := lifetime.WithTimeout(ctx, j.e.cfg.Load().UndoTimeout, "plugins took longer than %v")
	defer cancel()
	return j.e.deps.Network.GC(ctx, func() []string {
		var valid []string
		for _, u := range j.e.recovery.unread.list() {
			valid = append(valid, u.Pod)
		}
		for _, p := range j.e.store.pods.List(nil) {
			valid = append(valid, p.ID)
		}
		return valid
	})
}

// The kinds of resources.
const (
	kindContainer  = "container"
	kindCgroup     = "cgroup"
	kindMount      = "mount"
	kindRootfs     = "root filesystem"
	kindAttachment = "network attachment"
	kindNetns      = "network namespace"
	kindPodDir     = "pod directory"
)

// resourceKind is one kind of resource that podd leaves on a machine under the id of a pod or container.
type resourceKind struct {
	what string
	list func() ([]string, error)
	free func(ctx context.Context, id string) error
}

// resourceKinds returns the kinds in the order in which they can be freed: processes, then what they use; addresses
// before the namespace that the plugins clean up in.
func (j *janitor) resourceKinds(ctx context.Context) []resourceKind {
	deps := &j.e.deps
	return []resourceKind{
		{kindMount, j.leftoverMounts, j.freeMounts}, // they block the removal of the container's directories
		{kindContainer, func() ([]string, error) { return j.listContainers(ctx) }, j.freeContainer},
		{kindCgroup, j.leftoverCgroups, j.freeCgroup},
		{kindRootfs, func() ([]string, error) { return deps.Images.ContainersWithMounts(ctx) }, deps.Images.Release},
		{kindAttachment, deps.Network.Attachments, j.freeAttachment},
		{kindNetns, j.pinnedNetns, j.freeNetns},
		{kindPodDir, j.e.files.Pods, j.freePodDir},
	}
}

// listContainers lists the bundles, and the containers without one that the handlers find.
func (j *janitor) listContainers(ctx context.Context) ([]string, error) {
	ids, err := layout.Names(j.e.paths.Bundles())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	errs := []error{err}
	for _, rt := range j.e.handlers.Current().Runtimes {
		if f, ok := rt.(Finder); ok {
			more, err := f.List(ctx)
			ids, errs = append(ids, more...), append(errs, err)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), errors.Join(errs...)
}

// freeContainer calls every handler: the record that names the right one is lost.
func (j *janitor) freeContainer(ctx context.Context, id string) error {
	var errs []error
	g := j.e.handlers.Current()
	for _, name := range g.Names() {
		if f, ok := g.Runtimes[name].(Finder); ok {
			errs = append(errs, f.Destroy(ctx, id))
			continue
		}
		errs = append(errs, g.Runtimes[name].Delete(ctx, id))
	}
	return errors.Join(errs...)
}

func (j *janitor) freeAttachment(ctx context.Context, id string) error {
	err := j.e.deps.Network.Teardown(ctx, id)
	if errors.Is(err, network.ErrDamaged) {
		err = j.abandon(ctx, id)
	}
	return err
}

// abandon detaches a pod whose record of the network is damaged or lost.
func (j *janitor) abandon(ctx context.Context, id string) error {
	pins, err := j.netnsPins()
	if err != nil {
		return err
	}
	return j.e.deps.Network.Abandon(ctx, network.Request{PodID: id, Netns: cmp.Or(pins[id], j.e.paths.Netns(id))})
}

func (j *janitor) pinnedNetns() ([]string, error) {
	pins, err := j.netnsPins()
	return slices.Collect(maps.Keys(pins)), err
}

func (j *janitor) freeNetns(ctx context.Context, id string) error {
	pins, err := j.netnsPins()
	if err != nil || pins[id] == "" {
		return err
	}
	return j.e.deps.Namespaces.Unpin(ctx, pins[id])
}

// netnsPins returns the pin files of network namespaces by pod: those in podd's own directory, and those elsewhere that
// a pod's directory claims. Other programs and other podds have files there too.
func (j *janitor) netnsPins() (map[string]string, error) {
	pins := map[string]string{}
	own, err := j.e.deps.Namespaces.Pinned(j.e.paths.OwnNetns())
	if err != nil {
		return nil, err
	}
	for _, path := range own {
		if id := filepath.Base(path); !strings.HasPrefix(id, layout.NetnsPrefix) {
			pins[id] = path
		}
	}
	ids, err := layout.Names(j.e.paths.PodRuns())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, id := range ids {
		pin := namespaces.Claimed(j.e.paths.ClaimLink(id))
		if filepath.Base(pin) == layout.NetnsPrefix+id {
			pins[id] = pin
		}
	}
	return pins, err
}

func (j *janitor) freePodDir(ctx context.Context, id string) error {
	pins := j.e.paths.Pins(id)
	return errors.Join(
		j.e.deps.Namespaces.Unpin(ctx, pins.IPC, pins.UTS, pins.User),
		j.e.files.Unmount(ctx, id),
		j.e.files.Remove(id))
}
