package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/host"
)

const (
	// recoverParallel is how many pods are looked at at once: the work is waiting for processes and the disk.
	recoverParallel = 16
	// recoverDeadline bounds the look at one pod, which is then kept as recorded, and the CNI plugins' garbage collection.
	recoverDeadline = 10 * time.Second
)

// Recover loads the records of an earlier daemon and brings them and the machine into agreement. One bad record,
// or one pod that cannot be asked, never fails it: the record is set aside, the pod kept as recorded.
func (e *Engine) Recover(ctx context.Context) error {
	ids, err := e.loadable()
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(recoverParallel)
	for _, id := range ids {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, recoverDeadline)
			defer cancel()
			e.recoverPod(ctx, id)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := e.collectGarbage(ctx); err != nil {
		e.Log.WithError(err).Error("something on this machine belongs to no record and could not be removed, the next start tries again")
	}
	return nil
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

func (e *Engine) recoverPod(ctx context.Context, id string) {
	p, err := e.loadPod(id)
	if err != nil {
		e.quarantine(filepath.Join(e.podsDir(), id), err)
		return
	}
	p.creation.adopt()
	if other := e.store.adoptPod(p); other != nil {
		e.podLog(p).WithField("other", other.ID).Warn("two pod sandboxes of one name")
	}
	containers := e.loadContainers(p)
	for _, c := range containers {
		e.settleContainer(ctx, c)
	}
	e.settlePod(ctx, p)
}

func (e *Engine) loadPod(id string) (*Pod, error) {
	dir := filepath.Join(e.podsDir(), id)
	var r PodRecord
	var s PodStatus
	err := errors.Join(
		checkpoint.Read(filepath.Join(dir, recordFile), recordVersion, &r),
		checkpoint.Read(filepath.Join(dir, statusFile), statusVersion, &s))
	if err == nil && (r.ID != id || r.Config == nil) {
		err = fmt.Errorf("%w: the record in %s is of pod %q", checkpoint.ErrCorrupt, dir, r.ID)
	}
	if err != nil {
		return nil, err
	}
	if err := host.ReserveLabels(r.Labels); err != nil {
		e.Log.WithField("pod", r.ID).WithError(err).Warn("another pod may be given the same SELinux level")
	}
	return e.newPod(r, s), nil
}

func (e *Engine) loadContainers(p *Pod) []*Container {
	parent := filepath.Join(p.dir, containersDir)
	if err := checkpoint.Sweep(parent); err != nil {
		e.podLog(p).WithError(err).Error("remove leftovers of a crash")
	}
	ids, err := checkpoint.List(parent)
	if err != nil {
		e.podLog(p).WithError(err).Error("list container records")
	}
	var containers []*Container
	for _, id := range ids {
		c, err := e.loadContainer(p, id)
		if err != nil {
			e.quarantine(filepath.Join(parent, id), err)
			continue
		}
		c.creation.adopt()
		if other := e.store.adoptContainer(c); other != nil {
			e.containerLog(c).WithField("other", other.ID).Warn("two containers of one name")
		}
		containers = append(containers, c)
	}
	return containers
}

func (e *Engine) loadContainer(p *Pod, id string) (*Container, error) {
	dir := filepath.Join(p.dir, containersDir, id)
	var r ContainerRecord
	var s ContainerStatus
	err := errors.Join(
		checkpoint.Read(filepath.Join(dir, recordFile), recordVersion, &r),
		checkpoint.Read(filepath.Join(dir, statusFile), statusVersion, &s))
	if err == nil && (r.ID != id || r.PodID != p.ID || r.Config == nil) {
		err = fmt.Errorf("%w: the record in %s is of container %q", checkpoint.ErrCorrupt, dir, r.ID)
	}
	if err != nil {
		return nil, err
	}
	if err := host.ReserveLabels(r.Labels); err != nil {
		e.Log.WithField("container", r.ID).WithError(err).Warn("another pod may be given the same SELinux level")
	}
	return e.newContainer(p, r, s), nil
}

// quarantine keeps a record that cannot be read for a person; the garbage collection frees what it stood for.
func (e *Engine) quarantine(path string, cause error) {
	to, err := checkpoint.Quarantine(path, e.quarantineDir())
	log := e.Log.WithError(cause).WithField("record", path)
	if err != nil {
		log.WithField("quarantine", err).Error("record cannot be read, nor moved away")
		return
	}
	log.WithField("kept", to).Error("record cannot be read, it was moved away")
}

// settleContainer does what reconcileContainer says.
func (e *Engine) settleContainer(ctx context.Context, c *Container) {
	if c.doomed() {
		return // there is nothing of it on the machine to look at
	}
	sameBoot := c.pod.BootID == e.cfg.BootID
	seen := containerObservation{sameBoot: sameBoot, status: oci.Absent}
	var process oci.Process
	if sameBoot {
		state, err := e.observeContainer(ctx, c)
		if err != nil {
			e.containerLog(c).WithError(err).Warn("container cannot be observed, it is kept as recorded")
		}
		seen.status, process = state.Status, state.Process
	}
	var err error
	switch action := reconcileContainer(c.Status().State, seen); action {
	case containerDiscard:
		// It returns the cause given, and logs what it could not undo.
		_ = e.discardContainer(ctx, c, errors.New("podd was stopped while it created the container"))
	case containerLost:
		e.exit(c, oci.Exit{Code: 255, At: time.Now()})
	case containerRan:
		err = c.observe(ContainerRunning, func(s *ContainerStatus) { s.Process, s.StartedAt = process, startTime(process) })
		e.watch(c)
	case containerWatch:
		e.watch(c)
	case containerRelease:
		err = e.undo(ctx, func(ctx context.Context) error { return e.deleteRuntimeState(ctx, c) })
	}
	if err != nil {
		e.containerLog(c).WithError(err).Error("recover container")
	}
}

func (e *Engine) observeContainer(ctx context.Context, c *Container) (oci.State, error) {
	rt, err := e.runtime(c.pod.Handler)
	if err != nil {
		return oci.State{}, err
	}
	return rt.State(ctx, c.ID)
}

// settlePod does what reconcilePod says.
func (e *Engine) settlePod(ctx context.Context, p *Pod) {
	seen := podObservation{sameBoot: p.BootID == e.cfg.BootID}
	if seen.sameBoot {
		seen.alive = e.podAlive(ctx, p)
	}
	switch reconcilePod(p.Status().State, seen) {
	case podKeep:
		if p.Status().State == PodReady {
			e.watchInfra(p)
		}
	case podDiscard:
		if err := e.discardPod(ctx, p, errors.New("podd was stopped while it created the pod sandbox")); err != nil {
			e.podLog(p).WithError(err).Info("half-made pod sandbox was discarded")
		}
	case podNotReady:
		reason := "its processes or namespaces are gone"
		if !seen.sameBoot {
			reason = "the node was rebooted"
		}
		if err := p.observe(PodNotReady, func(s *PodStatus) { s.Reason = reason }); err != nil {
			e.podLog(p).WithError(err).Error("write status")
		}
	}
}

// podAlive is true when p's network namespace is still pinned and its infra container, if it has one, runs.
func (e *Engine) podAlive(ctx context.Context, p *Pod) bool {
	if _, err := os.Lstat(p.Netns); p.Netns != "" && errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if !sharesPID(p.Config) {
		return true
	}
	rt, err := e.runtime(p.Handler)
	if err != nil {
		return true // the handler is not configured any more; nothing says that the pod is dead
	}
	state, err := rt.State(ctx, p.ID)
	return err != nil || state.Status == oci.Running || state.Status == oci.Created
}
