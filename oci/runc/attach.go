package runc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/runc/conmon"
)

// Attach connects a client to the main process of a running container, beside other clients and the log, and
// returns when the container's output has ended (nil), the client is gone or too slow, or ctx ends. The
// container does not notice, but for its stdin: when Stdin ends, a container created with StdinOnce gets its
// end of input.
func (r *Runtime) Attach(ctx context.Context, id string, s oci.Streams) error {
	b, err := r.bundle(id)
	if err != nil {
		return err
	}
	rec, err := b.load()
	if err != nil {
		return err
	}
	if !rec.Init.Alive() {
		return fmt.Errorf("container %s is not running: %w", id, errdefs.ErrFailedPrecondition)
	}
	conn, err := conmon.Attach(string(b))
	if err != nil {
		return fmt.Errorf("container %s: %w", id, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := connection{conn: conn, resize: func(z oci.Size) { _ = conmon.Resize(string(b), z.Width, z.Height) }}
	if err := c.serve(ctx, cancel, s, nil); err != nil {
		return fmt.Errorf("attach to container %s: %w", id, err)
	}
	return nil
}

// Relay connects a client to a monitor that speaks conmon's protocol, as Attach does, and closes conn. resize sets
// the size of the container's terminal; ended is called when the client's input has ended.
func Relay(ctx context.Context, conn *conmon.Conn, s oci.Streams, resize func(oci.Size), ended func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := connection{conn: conn, resize: resize, ended: ended}
	return c.serve(ctx, cancel, s, nil)
}

// connection is a client's connection to a monitor.
type connection struct {
	conn *conmon.Conn
	// resize sets the terminal's size.
	resize func(oci.Size)
	// ended, if any, is called when the client's input has ended and the monitor was told.
	ended func()
	// keepInput leaves the end of the client's input untold: a terminal has none, its user types ^D.
	keepInput bool
}

// serve passes everything on until the output ends, calling begin, if any, once it is ready. cancel must end
// ctx.
func (c connection) serve(ctx context.Context, cancel context.CancelCauseFunc, s oci.Streams, begin func() error) error {
	defer c.conn.Close()
	stop := context.AfterFunc(ctx, func() { c.conn.Close() })
	defer stop()
	done, over := context.WithCancel(ctx)
	defer over()
	go resize(done, s.Resize, c.resize)
	if s.Stdin != nil {
		go func() {
			_, _ = io.Copy(writeOnly{c.conn}, s.Stdin)
			// However it ended: stdin_once is until the first client disconnects.
			if !c.keepInput {
				_ = c.conn.CloseStdin()
			}
			if c.ended != nil {
				c.ended()
			}
		}()
	}
	if begin != nil {
		if err := begin(); err != nil {
			return err
		}
	}
	return pump(ctx, cancel, c.conn, s)
}

// pump passes the output on until it ends.
func pump(ctx context.Context, cancel context.CancelCauseFunc, conn *conmon.Conn, s oci.Streams) error {
	queue, written := newBacklog(), make(chan error, 1)
	go func() {
		err := queue.drain(ctx)
		if err != nil {
			cancel(err) // the client is gone: closes conn
		}
		written <- err
	}()
	err := receive(conn, queue, s)
	queue.finish()
	if err != nil && ctx.Err() == nil {
		cancel(err)
	}
	timer := time.NewTimer(clientTime)
	defer timer.Stop()
	select {
	case errWrite := <-written:
		return errWrite
	case <-timer.C:
		return errSlowClient
	case <-ctx.Done():
		return context.Cause(ctx) // the writer may hang in a Write: the owner of the stream ends that
	}
}

// receive reads from the monitor until it ends.
func receive(conn *conmon.Conn, queue *backlog, s oci.Streams) error {
	buf := new(conmon.Buffer)
	for {
		stream, data, err := conn.Read(buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		to := s.Stdout
		if stream == conmon.Stderr {
			to = s.Stderr
		}
		if err := queue.add(to, data); err != nil {
			return err
		}
	}
}

// resize applies the sizes until the client or ctx ends.
func resize(ctx context.Context, sizes <-chan oci.Size, apply func(oci.Size)) {
	for {
		select {
		case z, ok := <-sizes:
			if !ok {
				return
			}
			apply(z)
		case <-ctx.Done():
			return
		}
	}
}
