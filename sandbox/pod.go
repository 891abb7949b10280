package sandbox

import (
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/oci/logfile"
	"github.com/podd-project/podd/sandbox/handler"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/sandbox/snapshot"
)

// Pod is one pod sandbox. The embedded record never changes; Status is a published value.
type Pod struct {
	record.Pod
	status atomic.Pointer[record.PodStatus]
	// dir is where the pod's record is kept, on disk.
	dir  string
	disk checkpoint.Disk
	// logger is the engine's; see log.
	logger logrus.FieldLogger
	// life ends when the pod starts to stop: it cancels creations in the pod.
	life lifecycle.Lifetime
	// handler is the one that the pod was created with.
	handler *handler.Held
	// gate lets containers be created until the pod stops.
	gate lifecycle.Gate
	// slot is held by stop and remove.
	slot lifecycle.Slot
	// tornDown is true after a stop that has undone everything, so that another, such as that of RemovePod, writes and
	// undoes nothing. It needs slot.
	tornDown bool
	// post sends an event of the pod to the subscribers and to the plugins.
	post func(lifecycle.EventType)
	// creation is how callers wait for RunPod, and claim its result.
	creation *lifecycle.Creation
	history  operation.History
	// source is the checkpoint that the pod is being restored from; nil for other pods, and after a restart of podd.
	source *snapshot.Snapshot
	// release ends the charge of the pod.
	release func()
	// restorers counts the callers that restore the pod.
	restorers atomic.Int32

	mu sync.Mutex // orders status changes
}

// newPod returns a pod; chosen is the handler of a new one.
func (e *Engine) newPod(r record.Pod, s record.PodStatus, chosen *handler.Choice) *Pod {
	p := &Pod{
		Pod: r, dir: filepath.Join(e.paths.Pods(), r.ID), disk: e.deps.Records, logger: e.deps.Log,
		slot: lifecycle.NewSlot(), life: lifecycle.NewLifetime(e.life.Context()), creation: lifecycle.NewCreation(),
		release: func() {},
	}
	p.handler = e.handlers.Hold(&p.Pod, chosen)
	p.post = func(t lifecycle.EventType) {
		e.events.Post(t, p.ID, p)
		e.deps.Plugins.PostPod(t, p.View())
	}
	p.status.Store(&s)
	return p
}

// Status returns the pod's present status, without waiting.
func (p *Pod) Status() record.PodStatus { return *p.status.Load() }

// View returns the pod as it is now.
func (p *Pod) View() record.PodView { return record.PodView{Pod: &p.Pod, Status: p.Status()} }

// advance moves the pod to state to and lets change fill in the rest. The new status is on disk before it is published;
// when it cannot be written nothing changes.
func (p *Pod) advance(to record.PodState, change func(*record.PodStatus)) error {
	return p.update(to, change, true)
}

// observe is advance for a past event: the status is published even when it cannot be written, and after a
// restart it is observed again.
func (p *Pod) observe(to record.PodState, change func(*record.PodStatus)) error {
	return p.update(to, change, false)
}

func (p *Pod) update(to record.PodState, change func(*record.PodStatus), durable bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.Status()
	if err := next.State.CheckTransition(to); err != nil {
		return err
	}
	next.State = to
	if change != nil {
		change(&next)
	}
	err := record.WriteStatus(p.disk, p.dir, next)
	if err != nil && durable {
		return err
	}
	p.status.Store(&next)
	return err
}

// noteLogDir returns what identifies the pod's log directory from now on, zero if it has none.
func (p *Pod) noteLogDir() (logfile.Dir, error) {
	if p.Config.GetLogDirectory() == "" {
		return logfile.Dir{}, nil
	}
	return logfile.NoteDir(p.Config.GetLogDirectory())
}

// markNotReady observes that the pod is not ready.
func (p *Pod) markNotReady(reason string) {
	err := p.observe(record.PodNotReady, func(s *record.PodStatus) { s.Reason = reason })
	if err != nil {
		p.log().WithError(err).Error("failed to write pod status")
	}
}

func (p *Pod) log() logrus.FieldLogger {
	m := p.Config.GetMetadata()
	return p.logger.WithFields(logrus.Fields{"pod": p.ID, "name": m.GetName(), "namespace": m.GetNamespace()})
}
