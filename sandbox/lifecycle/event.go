package lifecycle

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

// Type is the kind of an Event.
type EventType int

// The events of the CRI (KEP-3386), for containers and for pod sandboxes.
const (
	Created EventType = iota
	Started
	Stopped
	Deleted
)

// Event reports a change of state. It is a hint: consumers act on the present state.
type Event[P any] struct {
	Type EventType
	// ID is the container's, or the pod's own.
	ID  string
	Pod P
	At  time.Time
}

// eventBuffer is how far a subscriber may fall behind, in events.
const eventBuffer = 1024

// Bus sends events to subscribers. Posting never waits: a subscriber whose buffer is full is unsubscribed, which it
// notices, unlike a missed event.
type Bus[P any] struct {
	mu   sync.Mutex
	subs map[chan Event[P]]struct{}
}

// Post sends an event that happens now.
func (b *Bus[P]) Post(t EventType, id string, pod P) {
	e := Event[P]{Type: t, ID: id, Pod: pod, At: time.Now()}
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

// Subscribe returns a channel of the events from now on, which is closed if its reader falls too far behind, and a
// function that ends the subscription.
func (b *Bus[P]) Subscribe() (events <-chan Event[P], end func()) {
	ch := make(chan Event[P], eventBuffer)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subs == nil {
		b.subs = map[chan Event[P]]struct{}{}
	}
	b.subs[ch] = struct{}{}
	return ch, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.subs, ch)
	}
}

// Subscribers returns how many subscriptions there are.
func (b *Bus[P]) Subscribers() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.subs)
}

// Send calls send for every event from now on, in order, until send fails, or ctx or life ends, whose cause it returns.
// A subscriber that falls too far behind gets errdefs.ErrResourceExhausted and has to list again.
func (b *Bus[P]) Send(ctx, life context.Context, send func(Event[P]) error) error {
	events, end := b.Subscribe()
	defer end()
	for {
		select {
		case event, ok := <-events:
			if !ok {
				return fmt.Errorf("%w: more than %d events are waiting, list and subscribe again",
					errdefs.ErrResourceExhausted, eventBuffer)
			}
			if err := send(event); err != nil {
				return err
			}
		case <-life.Done():
			return context.Cause(life)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
