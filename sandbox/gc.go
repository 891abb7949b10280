package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/sandbox/garbage"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/record"
)

const (
	// gcRetry is the delay after a collection that failed; it doubles up to gcMaxRetry.
	gcRetry    = 10 * time.Second
	gcMaxRetry = 10 * time.Minute
)

// janitor finds and frees what is on the machine or on disk and in no record.
type janitor struct {
	e       *Engine
	machine garbage.Machine
	// wake makes RunGC collect again; pending is what the last collection could not free.
	wake    chan struct{}
	pending atomic.Pointer[[]PendingCleanup]
	// quarantined are the damaged records that were moved away.
	quarantined quarantineList
}

func newJanitor(e *Engine) *janitor {
	j := &janitor{e: e, wake: make(chan struct{}, 1)}
	j.machine = garbage.Machine{
		Paths: e.paths, Files: &e.files, Handlers: &e.handlers,
		Namespaces: e.deps.Namespaces, Network: e.deps.Network, Images: e.deps.Images,
		Cgroups:  j.cgroupsOfPods,
		Prefixes: func() []string { return []string{e.cfg.Load().CgroupPrefix, DefaultConfig().CgroupPrefix} },
	}
	return j
}

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
// pods are created: the machine is listed before the records, and a new pod has its record
// before anything else of it exists. errdefs.ErrUnavailable: the network was not collected because a pod was being
// attached.
func (e *Engine) GC(ctx context.Context) error {
	select {
	case <-e.recovery.loaded:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	j := e.janitor
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
	if err := j.machine.RemoveLostCommands(ctx); err != nil {
		pending = append(pending, PendingCleanup{What: "commands of a stopped podd", Error: err.Error()})
	}
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
func (j *janitor) candidates(ctx context.Context) (map[string][]garbage.Kind, []PendingCleanup) {
	candidates := map[string][]garbage.Kind{}
	var pending []PendingCleanup
	for _, kind := range j.machine.Kinds() {
		ids, err := kind.List(ctx)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			pending = append(pending, PendingCleanup{What: "list of each " + kind.What, Error: err.Error()})
		}
		for _, id := range ids {
			candidates[id] = append(candidates[id], kind)
		}
	}
	return candidates, pending
}

// unclaimed removes the candidates whose id is in a record. A pod whose record cannot be read may own any container: if
// its directory cannot be listed either, nothing is garbage.
func (j *janitor) unclaimed(candidates map[string][]garbage.Kind) map[string][]garbage.Kind {
	for _, u := range j.e.recovery.unread.List() {
		delete(candidates, u.ID())
		containers, err := checkpoint.List(filepath.Join(u.Path, record.ContainersDir))
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
func (j *janitor) free(ctx context.Context, id string, kinds []garbage.Kind) (what string, err error) {
	for _, kind := range kinds {
		j.e.deps.Log.WithField("id", id).Warnf("%s belongs to no record, removing it", kind.What)
		ctx, cancel := lifecycle.WithTimeout(ctx, j.e.cfg.Load().UndoTimeout, "teardown took longer than %v")
		err := kind.Free(ctx, id)
		cancel()
		if err != nil {
			return kind.What, err
		}
	}
	return "", nil
}

// collectNetworks makes the CNI plugins free what they hold for pods without a record.
func (j *janitor) collectNetworks(ctx context.Context) error {
	ctx, cancel := lifecycle.WithTimeout(ctx, j.e.cfg.Load().UndoTimeout, "plugins took longer than %v")
	defer cancel()
	return j.e.deps.Network.GC(ctx, func() []string {
		var valid []string
		for _, u := range j.e.recovery.unread.List() {
			valid = append(valid, u.Pod)
		}
		for _, p := range j.e.store.pods.List(nil) {
			valid = append(valid, p.ID)
		}
		return valid
	})
}

// cgroupsOfPods returns the cgroups that the kubelet has made for recorded pods. One that several pods share may hold
// containers of another podd and is skipped.
func (j *janitor) cgroupsOfPods() ([]string, error) {
	records, err := j.loadRecords()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, p := range records.pods {
		if parent := j.e.cfg.Load().podCgroup(p); namedByUID(p, parent) {
			found = append(found, parent)
		}
	}
	return found, nil
}
