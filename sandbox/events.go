package sandbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

// EventType is the kind of an Event.
type EventType int

// The events of the CRI (KEP-3386), for containers and for pod sandboxes.
const (
	EventCreated EventType = iota
	EventStarted
	EventStopped
	EventDeleted
)

// Event reports a change of state. It is a hint: consumers act on the present state, in Pod and Containers.
type Event struct {
	Type EventType
	// ID is the container's, or the pod's own.
	ID  string
	Pod *Pod
	At  time.Time
}

// eventBuffer is how far a subscriber may fall behind, in events.
const eventBuffer = 1024

// bus sends events to subscribers. Posting never waits: a subscriber whose buffer is full is unsubscribed, which it
// notices, unlike a missed event.
type bus struct {
	mu   sync.Mutex
	subs map[chan Event]struct{}
}

func (b *bus) post(e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ch := range b.subs {
		select {
		case ch <- e:
		default:
			delete(b.subs, ch)
			close(ch)
		}
	}
}

func (b *bus) postPod(p *Pod, t EventType) { b.post(Event{Type: t, ID: p.ID, Pod: p, At: time.Now()}) }

func (b *bus) postContainer(c *Container, t EventType) {
	b.post(Event{Type: t, ID: c.ID, Pod: c.pod, At: time.Now()})
}

func (b *bus) subscribe() chan Event {
	ch := make(chan Event, eventBuffer)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subs == nil {
		b.subs = map[chan Event]struct{}{}
	}
	b.subs[ch] = struct{}{}
	return ch
}

func (b *bus) unsubscribe(ch chan Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.subs, ch)
}

// Events calls send for every event from now on, in order, until ctx ends or send fails. A subscriber that falls too
// far behind gets errdefs.ErrResourceExhausted and has to list again.
func (e *Engine) Events(ctx context.Context, send func(Event) error) error {
	ch := e.events.subscribe()
	defer e.events.unsubscribe(ch)
	for {
		select {
		case event, ok := <-ch:
			if !ok {
				return fmt.Errorf("%w: more than %d events are waiting, list and subscribe again",
					errdefs.ErrResourceExhausted, eventBuffer)
			}
			if err := send(event); err != nil {
				return err
			}
		case <-e.life.ctx.Done():
			return context.Cause(e.life.ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
