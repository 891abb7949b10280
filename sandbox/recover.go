package sandbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
)

const (
	// observeTimeout bounds the observation of one pod or container, which is then kept as recorded, and the reading of
	// the records.
	observeTimeout = 10 * time.Second
	// observeGrace is how long Recover waits for all observations. The engine serves while slower runtimes are observed.
	observeGrace = time.Second
	// undoParallel is how many incomplete pods and containers are undone at once: the work is CPU-bound.
	undoParallel = 4
)

// recovery brings the records of an earlier daemon and the machine into agreement.
type recovery struct {
	e *Engine
	// unread are the records that could not be read yet; loaded is closed once each has been tried.
	unread record.UnreadRecords
	loaded chan struct{}
	// observing holds the pods and containers whose state is not known yet, reconciling those that are not reconciled.
	observing   lifecycle.Gate
	reconciling lifecycle.Gate
	// recovered is closed at the end of Recover; undoSlots bounds the undos at once after that.
	recovered chan struct{}
	undoSlots chan struct{}
	// attachments returns the pods that were attached to the network when the first pod was examined.
	attachments func() ([]string, error)
}

func newRecovery(e *Engine) recovery {
	return recovery{
		e: e, loaded: make(chan struct{}), recovered: make(chan struct{}), undoSlots: make(chan struct{}, undoParallel),
		attachments: sync.OnceValues(e.deps.Network.Attachments),
	}
}

// Recover loads the records of an earlier daemon and starts to reconcile them with the machine. A damaged record is
// quarantined, and a pod that cannot be observed is kept as recorded; neither fails or delays Recover. Incomplete pods
// and containers are undone afterwards, while the engine serves: they have no name and are not listed. Resources
// without a record are left to RunGC.
func (e *Engine) Recover(ctx context.Context) error {
	r := &e.recovery
	defer close(r.recovered)
	ids, err := r.listRecords()
	if err != nil {
		return err
	}
	e.janitor.ListQuarantine()
	loaded := r.loadPods(ids)
	e.work.Go(func() { watchPods(e) })
	e.work.Go(func() {
		<-loaded
		close(r.loaded)
	})
	deadline := time.NewTimer(observeTimeout)
	defer deadline.Stop()
	select {
	case <-loaded:
	case <-deadline.C:
		e.deps.Log.Error("failed to read all records in time, serving without the others until they are read")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	grace, cancel := context.WithTimeout(ctx, observeGrace)
	defer cancel()
	if err := r.observing.Close(grace); err != nil {
		e.deps.Log.Warn("some pods or containers are still being observed, serving concurrently")
	}
	return nil
}

// WaitRecovered waits until every pod and container that Recover found is reconciled with the machine.
func (e *Engine) WaitRecovered(ctx context.Context) error { return e.recovery.reconciling.Close(ctx) }

// start runs f in the background with a deadline. f calls markObserved when it knows what there is to do.
func (r *recovery) start(f func(ctx context.Context, markObserved func())) {
	entered := r.observing.Enter() // false for a record that is read after Recover
	counted := r.reconciling.Enter()
	r.e.work.Go(func() {
		if counted {
			defer r.reconciling.Leave()
		}
		markObserved := sync.OnceFunc(func() {
			if entered {
				r.observing.Leave()
			}
		})
		defer markObserved()
		ctx, cancel := lifecycle.WithTimeout(r.e.life.Context(), observeTimeout, "no answer within %v")
		defer cancel()
		f(ctx, markObserved)
	})
}

// acquireUndo waits for a slot in which an incomplete pod or container is undone. A waiter whose ctx ends proceeds
// without a slot, because the others are stuck. The error is that the engine is closing: then the next daemon undoes
// it.
func (r *recovery) acquireUndo(ctx context.Context) (release func(), err error) {
	operation.SetStage(ctx, "wait")
	select {
	case <-r.recovered:
	case <-r.e.life.Context().Done():
		return nil, context.Cause(r.e.life.Context())
	}
	select {
	case r.undoSlots <- struct{}{}:
		return func() { <-r.undoSlots }, nil
	case <-r.e.life.Context().Done():
		return nil, context.Cause(r.e.life.Context())
	case <-ctx.Done():
		return func() {}, nil
	}
}

// container does what reconcileContainer decides. The caller has acquired c.slot, which it releases.
func (r *recovery) container(ctx context.Context, c *Container, markObserved func()) {
	if c.startFails() && c.pod.BootID == r.e.node.BootID {
		c.slot.Release()
		return // it has nothing on the machine
	}
	endCheckpoint(ctx, c)
	operation.SetStage(ctx, "look")
	seen, process := r.observeContainer(ctx, c)
	action := reconcileContainer(c.Status().State, seen)
	if action == containerStarted {
		err := c.observe(record.ContainerRunning, func(s *record.ContainerStatus) {
			s.Process, s.StartedAt = process, process.StartTime()
		})
		if err != nil {
			c.log().WithError(err).Error("failed to write container status")
		}
	}
	c.slot.Release()
	if action != containerLost { // callers never see it running
		markObserved()
	}
	switch action {
	case containerDiscard:
		release, err := r.acquireUndo(ctx)
		if err != nil {
			c.creation.Finish(err)
			return
		}
		defer release()
		// It returns the given cause, and logs a failed undo.
		c.creation.Finish(r.e.discardContainer(ctx, c, errors.New("podd was stopped while it created the container")))
	case containerLost:
		r.e.exit(c, oci.Exit{Code: 255, At: time.Now()})
	case containerStarted, containerWatch:
		r.e.watch(c)
	case containerRelease:
		release, err := r.acquireUndo(ctx)
		if err != nil {
			return
		}
		defer release()
		r.e.releaseExited(ctx, c)
	}
}

// observeContainer queries the runtime for c, unless no answer would make a difference.
func (r *recovery) observeContainer(ctx context.Context, c *Container) (containerObservation, oci.Process) {
	seen := containerObservation{
		sameBoot: c.pod.BootID == r.e.node.BootID, status: oci.Absent, waiting: c.awaitsRestore(),
	}
	s := c.Status().State
	if !seen.sameBoot || s == record.ContainerCreating || s == record.ContainerRunning {
		return seen, oci.Process{}
	}
	var state oci.State
	rt, err := c.pod.handler.Runtime()
	if err == nil {
		state, err = rt.State(ctx, c.ID)
		seen.status = state.Status
	}
	if err != nil {
		c.log().WithError(err).Warn("failed to observe container, keeping it as recorded")
	}
	return seen, state.Process
}

// pod does what reconcilePod decides.
func (r *recovery) pod(ctx context.Context, p *Pod, markObserved func()) {
	seen, reason := podObservation{sameBoot: p.BootID == r.e.node.BootID}, "its stop was interrupted"
	switch {
	case !seen.sameBoot:
		reason = "the node was rebooted"
	case p.Status().State == record.PodReady: // otherwise it makes no difference
		if reason = loss(ctx, r.e, p); reason == "" && !r.attached(p) {
			reason = "it is not attached to the network"
		}
		seen.alive = reason == ""
	}
	switch reconcilePod(p.Status().State, seen) {
	case podKeep:
		if p.Status().State == record.PodReady {
			r.e.watchInfra(p)
		}
	case podDiscard:
		markObserved()
		release, err := r.acquireUndo(ctx)
		if err != nil {
			p.creation.Finish(err)
			return
		}
		defer release()
		err = r.e.discardPod(ctx, p, errors.New("podd was stopped while it created the pod sandbox"))
		if _, gone := r.e.Pod(p.ID); gone != nil {
			p.log().WithError(err).Info("incomplete pod sandbox discarded")
		}
		p.creation.Finish(err)
	case podNotReady:
		p.lose(ctx, reason)
	}
}

// attached reports whether a pod is attached to the network, or may be: a stop does not fail if the disk is too full to
// write the state.
func (r *recovery) attached(p *Pod) bool {
	if p.Netns == "" {
		return true
	}
	ids, err := r.attachments()
	return err != nil || slices.Contains(ids, p.ID)
}
