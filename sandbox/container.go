package sandbox

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
)

// Container is one container of a pod. The embedded record never changes; Status is a published value.
type Container struct {
	record.Container
	pod    *Pod
	status atomic.Pointer[record.ContainerStatus]
	dir    string
	// slot is held by start, update and remove; stop does not acquire it because it must overtake a stuck start.
	slot     lifecycle.Slot
	creation *lifecycle.Creation
	life     lifecycle.Lifetime
	kill     lifecycle.Stops
	history  operation.History
	// exited is closed once the status says Exited.
	exited chan struct{}
	// unmonitored is set while the container runs without its monitor, see oci.ErrNoMonitor.
	unmonitored atomic.Bool
	// release ends the charge of the container.
	release func()
	// post sends an event of the container to the subscribers and to the plugins.
	post func(lifecycle.EventType)

	mu sync.Mutex // orders status changes and guards start
	// start is the progress of StartContainer, for the watcher that writes the exit.
	start startAttempt
}

// startAttempt is the start as the watcher needs it: the exit may be observed before the start returns.
type startAttempt struct {
	at  time.Time
	err error
}

func (e *Engine) newContainer(p *Pod, r record.Container, s record.ContainerStatus) *Container {
	c := &Container{
		Container: r, pod: p, dir: filepath.Join(p.dir, record.ContainersDir, r.ID),
		slot: lifecycle.NewSlot(), creation: lifecycle.NewCreation(), life: lifecycle.NewLifetime(p.life.Context()),
		exited: make(chan struct{}), release: func() {},
	}
	c.post = func(t lifecycle.EventType) {
		e.events.Post(t, c.ID, c.pod)
		e.deps.Plugins.PostContainer(t, c.View())
	}
	c.status.Store(&s)
	if s.State == record.ContainerExited {
		close(c.exited)
	}
	return c
}

// Status returns the container's present status, without waiting.
func (c *Container) Status() record.ContainerStatus { return *c.status.Load() }

// View returns the container and its pod as they are now.
func (c *Container) View() record.ContainerView {
	return record.ContainerView{Container: &c.Container, Status: c.Status(), Pod: c.pod.View()}
}

// Unmonitored reports whether the container runs and its monitor has died, see oci.ErrNoMonitor.
func (c *Container) Unmonitored() bool { return c.unmonitored.Load() }

// Pod returns the pod that the container belongs to.
func (c *Container) Pod() *Pod { return c.pod }

// advance moves the container to state to; see Pod.advance.
func (c *Container) advance(to record.ContainerState, change func(*record.ContainerStatus)) error {
	return c.update(to, change, true)
}

// observe is advance for a past event; see Pod.observe.
func (c *Container) observe(to record.ContainerState, change func(*record.ContainerStatus)) error {
	return c.update(to, change, false)
}

func (c *Container) update(to record.ContainerState, change func(*record.ContainerStatus), durable bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.Status()
	if err := next.State.CheckTransition(to); err != nil {
		return err
	}
	entered := next.State != to
	next.State = to
	if change != nil {
		change(&next)
	}
	err := record.WriteStatus(c.pod.disk, c.dir, next)
	if err != nil && durable {
		return err
	}
	c.status.Store(&next)
	if entered {
		c.postStateLocked()
	}
	return err
}

// postStateLocked sends the event of the new state, under the lock so that the events are in order.
func (c *Container) postStateLocked() {
	switch c.Status().State {
	case record.ContainerRunning:
		c.post(lifecycle.Started)
	case record.ContainerExited:
		c.post(lifecycle.Stopped)
		close(c.exited)
	}
}

func (c *Container) beginStart(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start = startAttempt{at: at}
}

func (c *Container) failStart(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start.err = err
}

func (c *Container) startAttempt() startAttempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start
}

// startFails reports whether the container was created without a process because its command cannot be run. Its status
// has the reason since the creation, so that the start fails with it, also after a restart of the daemon.
func (c *Container) startFails() bool {
	s := c.Status()
	return s.State == record.ContainerCreated && s.Reason == reasonStartError
}

func (c *Container) log() logrus.FieldLogger {
	return c.pod.log().WithFields(logrus.Fields{"container": c.ID, "container_name": c.Config.GetMetadata().GetName()})
}
