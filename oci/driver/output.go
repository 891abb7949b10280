package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/podd-project/podd/oci"
)

// ExecLimits applies the timeout and the cap on the output of a request.
func ExecLimits(ctx context.Context, r oci.ExecRequest) (
	limited context.Context, cancel context.CancelFunc, limit int64,
) {
	limit = r.Limit
	if limit <= 0 {
		limit = defaultExecLimit
	}
	if r.Timeout <= 0 {
		return ctx, func() {}, limit
	}
	limited, cancel = context.WithTimeout(ctx, r.Timeout)
	return limited, cancel, limit
}

// Collector reads an output to its end in one goroutine, and keeps the first bytes.
type Collector struct {
	kept *paidHead
	done chan struct{}
}

// Collect starts to read. It keeps up to limit bytes, as far as grow, if not nil, admits them: see oci.ExecRequest.
func Collect(from Output, limit int64, grow func(n int64) error) *Collector {
	c := &Collector{kept: newPaid(limit, grow), done: make(chan struct{})}
	go func() {
		defer close(c.done)
		_ = CopyOutput(c.kept, from) // writes to memory do not fail
	}()
	return c
}

// Bytes waits for the end of the output and returns the bytes that were kept.
func (c *Collector) Bytes() []byte {
	<-c.done
	return c.kept.Bytes()
}

// Short waits for the end of the output and reports whether grow refused more.
func (c *Collector) Short() bool {
	<-c.done
	return c.kept.short
}

// Copies are the copies of a command's output to its client that are under way.
type Copies struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	outputs []Output
	done    chan error
	moved   chan struct{} // gets the ends of writes

	mu       sync.Mutex
	draining bool // the command has exited
	writing  int  // writes to the client in progress
}

// NewCopies returns an empty set with capacity for stdout and stderr. ctx is that of the session; cancel ends it when
// the client is gone.
func NewCopies(ctx context.Context, cancel context.CancelCauseFunc) *Copies {
	return &Copies{ctx: ctx, cancel: cancel, done: make(chan error, 2), moved: make(chan struct{}, 1)}
}

// Start starts a copy. A nil writer drops the output. If late is set, output after the exit of the command makes Drain
// wait longer.
func (c *Copies) Start(to io.Writer, from Output, late bool) {
	switch {
	case to == nil:
		to = io.Discard
	case late:
		to = drained{to, c}
	}
	c.outputs = append(c.outputs, from)
	go func() {
		err := CopyOutput(to, from)
		if err != nil {
			err = fmt.Errorf("client is gone: %w", err)
			c.cancel(err)
		}
		c.done <- err
	}()
}

// drained writes the output to the client.
type drained struct {
	io.Writer
	copies *Copies
}

func (d drained) Write(p []byte) (int, error) {
	d.copies.note(1)
	n, err := d.Writer.Write(p)
	d.copies.note(-1)
	signal(d.copies.moved)
	return n, err
}

// note notes that a write has begun or ended.
func (c *Copies) note(change int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing += change
	if c.draining {
		c.limitLocked()
	}
}

// limitLocked ends the reading after DrainTime, or later: a slow client must not end the reading of the other output.
func (c *Copies) limitLocked() {
	end := time.Now().Add(DrainTime)
	switch {
	case c.ctx.Err() != nil:
		end = time.Now()
	case c.writing > 0:
		end = time.Time{}
	}
	for _, o := range c.outputs {
		_ = o.SetReadDeadline(end)
	}
}

// Drain waits for the copies to end after the exit of the command, and returns the client's error: children may still
// write, as that of `pg_dump db > >(gzip)`, until they pause for DrainTime. One that never pauses keeps the
// session while the client stays: the client decides whether it wants that output. After the end of ctx, the reading
// ends within DrainTime. A copy that is blocked in a write to the client is left to the owner of the stream, which ends
// it.
func (c *Copies) Drain() error {
	c.mu.Lock()
	c.draining = true
	c.limitLocked()
	c.mu.Unlock()
	timer := time.NewTimer(clientTime)
	defer timer.Stop()
	var errs []error
	for len(errs) < len(c.outputs) {
		select {
		case err := <-c.done:
			errs = append(errs, err)
		case <-c.moved:
			timer.Reset(clientTime)
		case <-timer.C:
			return errors.Join(append(errs, ErrSlowClient)...)
		}
	}
	return errors.Join(errs...)
}
