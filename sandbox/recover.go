package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
)

const (
	// settleDeadline bounds the look at one pod or container, which is then kept as recorded, and the reading of the records.
	settleDeadline = 10 * time.Second
	// settleGrace is how long the start waits for all to be looked at. A runtime that hangs takes longer, and the engine
	// serves meanwhile.
	settleGrace = time.Second
	// undoParallel is how many pods and containers that were half made are undone at once: it takes all the CPU there is.
	undoParallel = 4
)

// Recover loads the records of an earlier daemon and begins to bring them and the machine into agreement. One bad record,
// or one pod that cannot be asked, never fails it nor holds it up: the record is set aside, the pod kept as recorded.
// What was half made is undone afterwards, while the engine serves: nobody waits for that, it has no name and is not listed.
// What no record claims is left to KeepClean.
func (e *Engine) Recover(ctx context.Context) error {
	defer close(e.recovered)
	ids, err := e.loadable()
	if err != nil {
		return err
	}
	if kept, err := names(e.quarantineDir()); err == nil {
		e.quarantined.add(kept...)
	}
	loaded := e.loadPods(ids)
	e.work.Go(func() {
		<-loaded
		close(e.loaded)
	})
	deadline := time.NewTimer(settleDeadline)
	defer deadline.Stop()
	select {
	case <-loaded:
	case <-deadline.C:
		e.Log.Error("not all records could be read in time, serving without the others until they are")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	grace, cancel := context.WithTimeout(ctx, settleGrace)
	defer cancel()
	if err := e.looking.close(grace); err != nil {
		e.Log.Warn("some pods or containers take longer to be looked at, serving meanwhile")
	}
	return nil
}

// settle runs f beside all others of its kind, with a deadline. f calls looked when it knows what there is to do.
func (e *Engine) settle(f func(ctx context.Context, looked func())) {
	waited := e.looking.enter() // Recover waits no longer for a record that could be read late
	counted := e.settling.enter()
	e.work.Go(func() {
		if counted {
			defer e.settling.leave()
		}
		looked := sync.OnceFunc(func() {
			if waited {
				e.looking.leave()
			}
		})
		defer looked()
		ctx, cancel := context.WithTimeoutCause(e.life.ctx, settleDeadline,
			fmt.Errorf("no answer within %v: %w", settleDeadline, context.DeadlineExceeded))
		defer cancel()
		f(ctx, looked)
	})
}

// turn waits until what was half made may be undone, as part of settling it. Who has waited long enough, because the others
// are stuck, does not wait for them. The error says that the engine is closing: then the next one undoes it.
func (e *Engine) turn(ctx context.Context) (done func(), err error) {
	operation.SetStage(ctx, "wait")
	select {
	case <-e.recovered:
	case <-e.life.ctx.Done():
		return nil, context.Cause(e.life.ctx)
	}
	select {
	case e.turns <- struct{}{}:
		return func() { <-e.turns }, nil
	case <-e.life.ctx.Done():
		return nil, context.Cause(e.life.ctx)
	case <-ctx.Done():
		return func() {}, nil
	}
}

// settleContainer does what reconcileContainer says. It is given c.op, and gives it back.
func (e *Engine) settleContainer(ctx context.Context, c *Container, looked func()) {
	if c.doomed() {
		c.op.release()
		return // there is nothing of it on the machine to look at
	}
	operation.SetStage(ctx, "look")
	seen, process := e.lookAtContainer(ctx, c)
	action := reconcileContainer(c.Status().State, seen)
	if action == containerRan {
		if err := c.observe(record.ContainerRunning, func(s *record.ContainerStatus) { s.Process, s.StartedAt = process, startTime(process) }); err != nil {
			e.containerLog(c).WithError(err).Error("write status")
		}
	}
	c.op.release()
	looked()
	switch action {
	case containerDiscard:
		done, err := e.turn(ctx)
		if err != nil {
			c.creation.finish(err)
			return
		}
		defer done()
		// It returns the cause given, and logs what it could not undo.
		c.creation.finish(e.discardContainer(ctx, c, errors.New("podd was stopped while it created the container")))
	case containerLost:
		e.exit(c, oci.Exit{Code: 255, At: time.Now()})
	case containerRan, containerWatch:
		e.watch(c)
	case containerRelease:
		done, err := e.turn(ctx)
		if err != nil {
			return
		}
		defer done()
		if err := e.undo(ctx, func(ctx context.Context) error { return e.deleteRuntimeState(ctx, c) }); err != nil {
			e.containerLog(c).WithError(err).Warn("delete runtime state of exited container, removal will try again")
		}
	}
}

// lookAtContainer asks the runtime about c, unless no answer would make a difference.
func (e *Engine) lookAtContainer(ctx context.Context, c *Container) (containerObservation, oci.Process) {
	seen := containerObservation{sameBoot: c.pod.BootID == e.cfg.BootID, status: oci.Absent}
	if s := c.Status().State; !seen.sameBoot || s == record.ContainerCreating || s == record.ContainerRunning {
		return seen, oci.Process{}
	}
	rt, err := e.runtimeOf(c.pod)
	if err != nil {
		e.containerLog(c).WithError(err).Warn("container cannot be observed, it is kept as recorded")
		return seen, oci.Process{}
	}
	state, err := rt.State(ctx, c.ID)
	if err != nil {
		e.containerLog(c).WithError(err).Warn("container cannot be observed, it is kept as recorded")
	}
	seen.status = state.Status
	return seen, state.Process
}

// settlePod does what reconcilePod says.
func (e *Engine) settlePod(ctx context.Context, p *Pod, looked func()) {
	seen := podObservation{sameBoot: p.BootID == e.cfg.BootID}
	if seen.sameBoot {
		seen.alive = e.podAlive(ctx, p)
	}
	switch reconcilePod(p.Status().State, seen) {
	case podKeep:
		if p.Status().State == record.PodReady {
			e.watchInfra(p)
		}
	case podDiscard:
		looked()
		done, err := e.turn(ctx)
		if err != nil {
			p.creation.finish(err)
			return
		}
		defer done()
		err = e.discardPod(ctx, p, errors.New("podd was stopped while it created the pod sandbox"))
		if _, left := e.Pod(p.ID); left != nil {
			e.podLog(p).WithError(err).Info("half-made pod sandbox was discarded")
		}
		p.creation.finish(err)
	case podNotReady:
		reason := "its processes or namespaces are gone"
		if !seen.sameBoot {
			reason = "the node was rebooted"
		}
		if err := p.observe(record.PodNotReady, func(s *record.PodStatus) { s.Reason = reason }); err != nil {
			e.podLog(p).WithError(err).Error("write status")
		}
	}
}

// podAlive is true when p's network namespace is still pinned and its infra container, if it has one, runs.
func (e *Engine) podAlive(ctx context.Context, p *Pod) bool {
	if p.Status().State != record.PodReady {
		return false // it makes no difference
	}
	if _, err := os.Lstat(p.Netns); p.Netns != "" && errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if !p.HasInfra() {
		return true
	}
	rt, err := e.runtimeOf(p)
	if err != nil {
		return true // the handler is not configured any more; nothing says that the pod is dead
	}
	state, err := rt.State(ctx, p.ID)
	return err != nil || state.Status == oci.Running || state.Status == oci.Created
}
