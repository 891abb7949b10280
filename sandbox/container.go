package sandbox

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
)

// Container is one container of a pod. The embedded record never changes; Status is a published value.
type Container struct {
	record.Container
	pod    *Pod
	status atomic.Pointer[record.ContainerStatus]
	dir    string
	// op is held by start, update and remove; stop takes no slot, it must overtake a start that is stuck.
	op       slot
	creation creation
	life     life
	kill     killer
	history  operation.History
	// exited is closed once the status says Exited.
	exited chan struct{}
	// post tells subscribers of the container.
	post func(EventType)

	mu sync.Mutex // orders status changes and guards start
	// start is what StartContainer has done so far, for the watcher that writes the exit.
	start startAttempt
}

// startAttempt is what the watcher needs to know of a start: the exit may be seen before the start returns.
type startAttempt struct {
	at  time.Time
	err error
}

func (e *Engine) newContainer(p *Pod, r record.Container, s record.ContainerStatus) *Container {
	c := &Container{
		Container: r, pod: p, dir: filepath.Join(p.dir, containersDir, r.ID),
		op: newSlot(), creation: newCreation(), life: newLife(p.life), exited: make(chan struct{}),
	}
	c.post = func(t EventType) { e.postContainer(c, t) }
	c.status.Store(&s)
	if s.State == record.ContainerExited {
		close(c.exited)
	}
	return c
}

// Status returns the container's present status, without waiting.
func (c *Container) Status() record.ContainerStatus { return *c.status.Load() }

// Pod returns the pod that the container belongs to.
func (c *Container) Pod() *Pod { return c.pod }

// advance moves the container to state to; see Pod.advance.
func (c *Container) advance(to record.ContainerState, change func(*record.ContainerStatus)) error {
	return c.update(to, change, true)
}

// observe is advance for what has happened already; see Pod.observe.
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
	err := record.WriteStatus(c.dir, next)
	if err != nil && durable {
		return err
	}
	c.status.Store(&next)
	if entered {
		c.tellLocked()
	}
	return err
}

// tellLocked says that the container has entered its state. Under the lock, so that the events come in order.
func (c *Container) tellLocked() {
	switch c.Status().State {
	case record.ContainerRunning:
		c.post(EventStarted)
	case record.ContainerExited:
		c.post(EventStopped)
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

// doomed is true for a created container that has no process, because its command cannot be run. Its status has had
// the reason since its creation, for the start to tell, by whichever daemon.
func (c *Container) doomed() bool {
	s := c.Status()
	return s.State == record.ContainerCreated && s.Reason == reasonStartError
}
