package driver

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

const (
	// backlogLimit is how far a client may fall behind an output that does not wait for it, in bytes.
	backlogLimit = 4 << 20
	// waitingLimit is the same for an output that waits.
	waitingLimit = 64 << 10
)

// ErrSlowClient ends the session of a client that does not read: the container must not wait for it.
var ErrSlowClient = errors.New("client does not keep up with the output")

// backlog passes output to a client in a separate goroutine, so that a slow client does not block the container. It
// is bounded in bytes, not in pieces.
type backlog struct {
	patience time.Duration
	limit    int

	mu     sync.Mutex
	pieces []piece
	size   int
	closed bool
	more   chan struct{} // buffers one signal that something was added, or is the last
	room   chan struct{} // buffers one signal that something was taken
}

type piece struct {
	to   io.Writer
	data []byte
}

func newBacklog(patience time.Duration) *backlog {
	b := &backlog{patience: patience, limit: backlogLimit, more: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	if patience > 0 {
		b.limit = waitingLimit
	}
	return b
}

// add takes a copy of data. If there is no room, it waits while the client reads within the patience.
func (b *backlog) add(ctx context.Context, to io.Writer, data []byte) error {
	for to != nil && !b.put(to, data) {
		timer := time.NewTimer(b.patience)
		select {
		case <-b.room:
			timer.Stop()
		case <-timer.C:
			return ErrSlowClient
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
	return nil
}

// put adds a copy of data if there is room.
func (b *backlog) put(to io.Writer, data []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size > 0 && b.size+len(data) > b.limit {
		return false
	}
	b.pieces = append(b.pieces, piece{to, append([]byte(nil), data...)})
	b.size += len(data)
	signal(b.more)
	return true
}

// finish reports that nothing more is added.
func (b *backlog) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	signal(b.more)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// next waits for a piece. ok is false after the last one.
func (b *backlog) next(ctx context.Context) (p piece, ok bool) {
	for {
		b.mu.Lock()
		if len(b.pieces) > 0 {
			p = b.pieces[0]
			b.pieces[0] = piece{}
			b.pieces = b.pieces[1:]
			b.size -= len(p.data)
			signal(b.room)
			b.mu.Unlock()
			return p, true
		}
		closed := b.closed
		b.mu.Unlock()
		if closed {
			return piece{}, false
		}
		select {
		case <-b.more:
		case <-ctx.Done():
			return piece{}, false
		}
	}
}

// drain writes everything to the client, until the end, an error, or the end of ctx.
func (b *backlog) drain(ctx context.Context) error {
	for {
		p, ok := b.next(ctx)
		if !ok {
			return context.Cause(ctx)
		}
		if _, err := p.to.Write(p.data); err != nil {
			return err
		}
	}
}
