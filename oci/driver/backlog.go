package driver

import (
	"context"
	"errors"
	"io"
	"sync"
)

// backlogLimit is how far an attached client may fall behind the output, in bytes.
const backlogLimit = 4 << 20

// ErrSlowClient ends the session of a client that does not read: the container must not wait for it.
var ErrSlowClient = errors.New("client does not keep up with the output")

// backlog passes output to a client in a separate goroutine, so that a slow client does not block the container. It
// is bounded in bytes, not in pieces.
type backlog struct {
	mu     sync.Mutex
	pieces []piece
	size   int
	closed bool
	more   chan struct{} // buffers one signal that something has changed
}

type piece struct {
	to   io.Writer
	data []byte
}

func newBacklog() *backlog { return &backlog{more: make(chan struct{}, 1)} }

// add takes a copy of data.
func (b *backlog) add(to io.Writer, data []byte) error {
	if to == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size+len(data) > backlogLimit {
		return ErrSlowClient
	}
	b.pieces = append(b.pieces, piece{to, append([]byte(nil), data...)})
	b.size += len(data)
	b.signal()
	return nil
}

// finish reports that nothing more is added.
func (b *backlog) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.signal()
}

func (b *backlog) signal() {
	select {
	case b.more <- struct{}{}:
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
