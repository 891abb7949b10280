package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	cancel  context.CancelCauseFunc
	running int
	done    chan error
}

// NewCopies returns an empty set with capacity for stdout and stderr. cancel ends the session when the client is gone.
func NewCopies(cancel context.CancelCauseFunc) *Copies {
	return &Copies{cancel: cancel, done: make(chan error, 2)}
}

// Start starts a copy. A nil writer drops the output.
func (c *Copies) Start(to io.Writer, from Output) {
	if to == nil {
		to = io.Discard
	}
	c.running++
	go func() {
		err := CopyOutput(to, from)
		if err != nil {
			err = fmt.Errorf("client is gone: %w", err)
			c.cancel(err)
		}
		c.done <- err
	}()
}

// Wait waits for the copies to end, and returns the client's error. A copy that is blocked in a write to the client is
// left to the owner of the stream, which ends it.
func (c *Copies) Wait() error {
	timer := time.NewTimer(clientTime)
	defer timer.Stop()
	var errs []error
	for range c.running {
		select {
		case err := <-c.done:
			errs = append(errs, err)
		case <-timer.C:
			return errors.Join(append(errs, ErrSlowClient)...)
		}
	}
	return errors.Join(errs...)
}
