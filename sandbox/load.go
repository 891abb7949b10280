package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
)

const (
	// loadParallel is how many pods' records are read at once: the work is disk-bound.
	loadParallel = 16
	// loadRetry is the time between two attempts to read a record.
	loadRetry = time.Second
)

// loadPods starts to adopt the pods of an earlier daemon. The channel is closed once each record was tried.
func (r *recovery) loadPods(ids []string) <-chan struct{} {
	done := make(chan struct{})
	r.e.work.Go(func() {
		defer close(done)
		var loads errgroup.Group
		loads.SetLimit(loadParallel)
		for _, id := range ids {
			loads.Go(func() error {
				r.load(filepath.Join(r.e.paths.Pods(), id), id, func() error { return r.loadPod(id) })
				return nil
			})
		}
		_ = loads.Wait() // they return no errors
	})
	return done
}

// listRecords returns the ids of the pods on disk, after removing the leftovers of crashes.
func (r *recovery) listRecords() ([]string, error) {
	dir := r.e.paths.Pods()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("recover: %w", err)
	}
	if err := checkpoint.Sweep(dir); err != nil {
		r.e.deps.Log.WithError(err).Error("failed to remove leftovers of a crash")
	}
	ids, err := checkpoint.List(dir)
	if err != nil {
		return nil, fmt.Errorf("recover: %w", err)
	}
	return ids, nil
}

// load calls f to read the record at path and adopt its pod or container. A damaged record is quarantined, or removed
// if it was not synced. After any other error the record may be intact: it is left in place and read again until it is
// loaded or found damaged, or the engine closes.
func (r *recovery) load(path, pod string, f func() error) {
	if r.tryLoad(path, pod, f) {
		return
	}
	r.e.work.Go(func() {
		for lifecycle.Sleep(r.e.life.Context(), loadRetry) {
			if r.tryLoad(path, pod, f) {
				r.unread.Remove(path)
				r.e.janitor.WakeUp() // if the record is damaged, its resources are garbage from now on
				r.e.deps.Log.WithField("record", path).Info("record was read after a retry, or is gone")
				return
			}
		}
	})
}

// tryLoad is one attempt of load; false asks for another.
func (r *recovery) tryLoad(path, pod string, f func() error) bool {
	err := f()
	switch {
	case err == nil:
		return true
	case errors.Is(err, record.ErrUnfinished):
		r.e.janitor.RemoveUnfinished(path, err)
		return true
	case checkpoint.IsPermanent(err):
		r.e.janitor.Quarantine(path, err)
		return true
	}
	if r.unread.Add(record.Unread{Path: path, Pod: pod, Error: err.Error(), Since: time.Now()}) { // once, not every second
		r.e.deps.Log.WithError(err).WithField("record", path).
			Error("failed to read record, leaving its resources in place and trying again")
	}
	return false
}

// loadPod adopts one pod and starts to reconcile it. Until that is done the status and the names are as recorded.
func (r *recovery) loadPod(id string) error {
	p, err := r.e.readPod(id)
	if err != nil {
		return err
	}
	parent := filepath.Join(p.dir, record.ContainersDir)
	containers, err := checkpoint.List(parent)
	if err != nil {
		return err
	}
	if err := errors.Join(checkpoint.Sweep(p.dir), checkpoint.Sweep(parent)); err != nil {
		p.log().WithError(err).Error("failed to remove leftovers of a crash")
	}
	if err := host.ReserveLabels(p.Labels); err != nil {
		p.log().WithError(err).Warn("failed to reserve SELinux level, another pod may get the same")
	}
	if p.release, err = chargeStored(p.ID, p.cost(r.e.deps.Budgets)); err != nil {
		p.log().WithError(err).Warn("pod sandbox is larger than the budgets allow now, it stays")
	}
	// One that was never finished has no name: it is discarded, and the kubelet asks for it again.
	state := p.Status().State
	if other, found := r.e.store.pods.Adopt(p, state != record.PodCreating, state == record.PodReady); found {
		p.log().WithField("other", other.ID).Warn("two pod sandboxes of one name")
	}
	if state != record.PodCreating {
		p.creation.Adopt()
	}
	for _, c := range containers {
		r.load(filepath.Join(parent, c), p.ID, func() error { return r.loadContainer(p, c) })
	}
	r.start(func(ctx context.Context, markObserved func()) {
		_ = r.e.onPod(ctx, operation.Recover, p, func(ctx context.Context) error {
			operation.SetStage(ctx, "look")
			r.pod(ctx, p, markObserved)
			return nil
		})
	})
	return nil
}

// loadContainer is loadPod for one of p's containers, which may have been removed with p since the last attempt.
func (r *recovery) loadContainer(p *Pod, id string) error {
	if err := p.slot.Acquire(r.e.life.Context()); err != nil {
		return nil // the next daemon loads it
	}
	defer p.slot.Release()
	if _, err := r.e.Pod(p.ID); err != nil {
		return nil
	}
	c, err := r.e.readContainer(p, id)
	if err != nil {
		return err
	}
	if err := checkpoint.Sweep(c.dir); err != nil {
		c.log().WithError(err).Error("failed to remove leftovers of a crash")
	}
	if err := host.ReserveLabels(c.Labels); err != nil {
		c.log().WithError(err).Warn("failed to reserve SELinux level, another pod may get the same")
	}
	if c.release, err = chargeStored(p.ID, c.cost(r.e.life.Context(), r.e)); err != nil {
		c.log().WithError(err).Warn("container is larger than the budgets allow now, it stays")
	}
	named := c.Status().State != record.ContainerCreating
	if other, found := r.e.store.containers.Adopt(c, named, true); found {
		c.log().WithField("other", other.ID).Warn("two containers of one name")
	}
	if named {
		c.creation.Adopt()
	}
	_ = c.slot.Acquire(context.Background()) // at once: it is new. It blocks start and removal until c is observed.
	r.start(func(ctx context.Context, markObserved func()) {
		_ = r.e.onContainer(ctx, operation.Recover, c, 0, func(ctx context.Context) error {
			r.container(ctx, c, markObserved)
			return nil
		})
	})
	return nil
}

func (e *Engine) readPod(id string) (*Pod, error) {
	r, s, lost, err := record.ReadPod(filepath.Join(e.paths.Pods(), id), e.node.BootID)
	if err != nil {
		return nil, err
	}
	p := e.newPod(r, s, nil)
	if lost != nil {
		p.log().WithError(lost).Warn("status was lost when the machine went down, the pod is not ready")
	}
	return p, nil
}

func (e *Engine) readContainer(p *Pod, id string) (*Container, error) {
	dir := filepath.Join(p.dir, record.ContainersDir, id)
	r, s, lost, err := record.ReadContainer(dir, p.Pod, e.node.BootID)
	if err != nil {
		return nil, err
	}
	if err := record.SyncStatus(e.deps.Records, dir, s); err != nil {
		return nil, err
	}
	c := e.newContainer(p, r, s)
	if lost != nil {
		c.log().WithError(lost).Warn("status was lost when the machine went down, the container has exited")
	}
	return c, nil
}
