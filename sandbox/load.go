package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
)

// loadParallel is how many pods' records are read at once: the work is waiting for the disk.
const loadParallel = 16

// loadPods begins to take over the pods that an earlier daemon left. The channel is closed once every record has been
// looked at.
func (e *Engine) loadPods(ids []string) <-chan struct{} {
	var loads work
	places := make(chan struct{}, loadParallel)
	for _, id := range ids {
		loads.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			e.take(filepath.Join(e.podsDir(), id), id, func() error { return e.loadPod(id) })
		})
	}
	done := make(chan struct{})
	e.work.Go(func() {
		defer close(done)
		loads.Wait()
	})
	return done
}

// loadable names the records on disk, after removing what crashes left half made or half removed.
func (e *Engine) loadable() ([]string, error) {
	if err := os.MkdirAll(e.podsDir(), 0o700); err != nil {
		return nil, fmt.Errorf("recover: %w", err)
	}
	if err := checkpoint.Sweep(e.podsDir()); err != nil {
		e.Log.WithError(err).Error("remove leftovers of a crash")
	}
	ids, err := checkpoint.List(e.podsDir())
	if err != nil {
		return nil, fmt.Errorf("recover: %w", err)
	}
	return ids, nil
}

// loadPod takes over one pod and begins to settle it. Until that is done its containers' names and its own stand as
// they were recorded.
func (e *Engine) loadPod(id string) error {
	p, err := e.readPod(id)
	if err != nil {
		return err
	}
	parent := filepath.Join(p.dir, containersDir)
	containers, err := checkpoint.List(parent)
	if err != nil {
		return err
	}
	if err := checkpoint.Sweep(parent); err != nil {
		e.podLog(p).WithError(err).Error("remove leftovers of a crash")
	}
	if err := host.ReserveLabels(p.Labels); err != nil {
		e.podLog(p).WithError(err).Warn("another pod may be given the same SELinux level")
	}
	if other := e.store.adoptPod(p); other != nil {
		e.podLog(p).WithField("other", other.ID).Warn("two pod sandboxes of one name")
	}
	if p.Status().State != record.PodCreating {
		p.creation.adopt()
	}
	for _, c := range containers {
		e.take(filepath.Join(parent, c), p.ID, func() error { return e.loadContainer(p, c) })
	}
	e.settle(func(ctx context.Context, looked func()) {
		_ = e.onPod(ctx, operation.Recover, p, func(ctx context.Context) error {
			operation.SetStage(ctx, "look")
			e.settlePod(ctx, p, looked)
			return nil
		})
	})
	return nil
}

func (e *Engine) readPod(id string) (*Pod, error) {
	r, s, err := record.ReadPod(filepath.Join(e.podsDir(), id))
	if err != nil {
		return nil, err
	}
	return e.newPod(r, s), nil
}

// loadContainer is loadPod for one of p's containers, which may have been removed with p since it was tried last.
func (e *Engine) loadContainer(p *Pod, id string) error {
	if err := p.op.take(e.life.ctx); err != nil {
		return nil // the next daemon loads it
	}
	defer p.op.release()
	if _, err := e.Pod(p.ID); err != nil {
		return nil
	}
	c, err := e.readContainer(p, id)
	if err != nil {
		return err
	}
	if err := host.ReserveLabels(c.Labels); err != nil {
		e.containerLog(c).WithError(err).Warn("another pod may be given the same SELinux level")
	}
	if other := e.store.adoptContainer(c); other != nil {
		e.containerLog(c).WithField("other", other.ID).Warn("two containers of one name")
	}
	if c.Status().State != record.ContainerCreating {
		c.creation.adopt()
	}
	_ = c.op.take(context.Background()) // at once: it is new. Until it is settled nobody starts or removes it.
	e.settle(func(ctx context.Context, looked func()) {
		_ = e.onContainer(ctx, operation.Recover, c, 0, func(ctx context.Context) error {
			e.settleContainer(ctx, c, looked)
			return nil
		})
	})
	return nil
}

func (e *Engine) readContainer(p *Pod, id string) (*Container, error) {
	r, s, err := record.ReadContainer(filepath.Join(p.dir, containersDir, id), p.ID)
	if err != nil {
		return nil, err
	}
	return e.newContainer(p, r, s), nil
}
