package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/sandbox/garbage"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/record"
)

// Trouble is something that podd cannot read or free, see garbage.Trouble.
type Trouble = garbage.Trouble

func newJanitor(e *Engine) *garbage.Janitor {
	return garbage.NewJanitor(garbage.Machine{
		Paths: e.paths, Files: &e.files, Handlers: &e.handlers,
		Namespaces: e.deps.Namespaces, Network: e.deps.Network, Images: e.deps.Images,
		Cgroups:  e.cgroupsOfPods,
		Prefixes: func() []string { return []string{e.cfg.Load().CgroupPrefix, DefaultConfig().CgroupPrefix} },
	}, claims{e}, e.deps.Log, func() time.Duration { return e.cfg.Load().undoTimeout() })
}

// undo runs one teardown of a pod or container, see lifecycle.Undo, with the limit of the present configuration.
func undo(ctx context.Context, e *Engine, teardown func(context.Context) error) error {
	return lifecycle.Undo(ctx, e.cfg.Load().undoTimeout(), teardown)
}

// RunGC collects garbage until ctx ends, see garbage.Janitor.
func (e *Engine) RunGC(ctx context.Context) { e.janitor.Run(ctx) }

// GC frees resources that no record claims, see garbage.Janitor.Collect.
func (e *Engine) GC(ctx context.Context) error { return e.janitor.Collect(ctx) }

// claims are the engine's records as the janitor sees them.
type claims struct{ e *Engine }

func (c claims) AwaitLoaded(ctx context.Context) error {
	select {
	case <-c.e.recovery.loaded:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Claimed does not know all ids if the directory of a pod whose record cannot be read cannot be listed either: the pod
// may own any container.
func (c claims) Claimed() (ids map[string]bool, known bool) {
	ids = map[string]bool{}
	for _, u := range c.e.recovery.unread.List() {
		ids[u.ID()] = true
		containers, err := checkpoint.List(filepath.Join(u.Path, record.ContainersDir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, false
		}
		for _, id := range containers {
			ids[id] = true
		}
	}
	for _, p := range c.e.store.pods.List(nil) {
		ids[p.ID] = true
	}
	for _, c := range c.e.store.containers.List(nil) {
		ids[c.ID] = true
	}
	return ids, true
}

func (c claims) Pods() []string {
	var ids []string
	for _, u := range c.e.recovery.unread.List() {
		ids = append(ids, u.Pod)
	}
	for _, p := range c.e.store.pods.List(nil) {
		ids = append(ids, p.ID)
	}
	return ids
}

// cgroupsOfPods returns the cgroups that the kubelet has made for recorded pods. One that several pods share may hold
// containers of another podd and is skipped.
func (e *Engine) cgroupsOfPods() ([]string, error) {
	records, err := e.loadRecords()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, p := range records.pods {
		if parent := e.podCgroup(p); namedByUID(p, parent) {
			found = append(found, parent)
		}
	}
	return found, nil
}

// Troubles returns the pods whose teardown failed or that ended and were not stopped yet, containers whose undo failed,
// garbage that could not be removed, and records that cannot be read or are damaged.
func (e *Engine) Troubles() []Trouble {
	troubles := e.janitor.Troubles()
	for _, p := range e.Pods() {
		if s := p.Status(); s.State == record.PodNotReady && s.Reason != "" {
			troubles = append(troubles, Trouble{Kind: garbage.Cleanup, What: "pod sandbox", ID: p.ID, Error: s.Reason})
		}
	}
	for _, c := range e.Containers() {
		if c.Status().State == record.ContainerCreating {
			troubles = append(troubles, Trouble{
				Kind: garbage.Cleanup, What: "container", ID: c.ID, Error: "its creation failed, and so did the undo",
			})
		}
	}
	for _, u := range e.recovery.unread.List() {
		troubles = append(troubles, Trouble{
			Kind: garbage.Unread, What: "record", ID: u.ID(), Path: u.Path, Since: u.Since, Error: u.Error,
		})
	}
	garbage.SortTroubles(troubles)
	return troubles
}
