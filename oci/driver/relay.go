package driver

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	"github.com/podd-project/podd/oci"
)

// Conn is a client's connection to the process that holds a container's stdin, stdout and stderr.
type Conn interface {
	// Write sends input.
	io.WriteCloser
	// CloseStdin reports the end of the input.
	CloseStdin() error
	// Receive returns the next piece of output, valid until the next call, and whether it is of stderr. The error is
	// io.EOF after the last one.
	Receive() (data []byte, stderr bool, err error)
}

// Relay connects a client to a container or a command with a terminal.
type Relay struct {
	Conn    Conn
	Streams oci.Streams
	// Resize sets the terminal's size.
	Resize func(oci.Size)
	// InputEnded, if set, is called at the end of the client's input, after Conn.CloseStdin.
	InputEnded func()
	// KeepStdin leaves stdin open when the client's input ends: a terminal has no end of input, its user types ^D.
	KeepStdin bool
	// Patience is how long the output waits for a client that takes nothing; 0: not at all.
	Patience time.Duration
	// Ready, if set, is called before the first output is received.
	Ready func() error
}

const (
	// Forever is the patience with the client of an exec: its command waits for no other one.
	Forever = time.Duration(math.MaxInt64)
	// ShellPatience is the patience with a client that is attached to a container with a terminal.
	ShellPatience = 10 * time.Second
)

// AttachPatience is the patience with an attached client. Only one of a terminal has sizes: a container with a terminal
// is somebody's shell.
func AttachPatience(s oci.Streams) time.Duration {
	if s.Resize == nil {
		return 0
	}
	return ShellPatience
}

// Run relays until the output ends (nil), the client is gone or too slow, or ctx ends, and closes the connection.
func (r Relay) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer r.Conn.Close()
	stop := context.AfterFunc(ctx, func() { r.Conn.Close() })
	defer stop()
	go FollowSizes(ctx, r.Streams.Resize, r.Resize)
	if r.Streams.Stdin != nil {
		go r.copyInput()
	}
	if r.Ready != nil {
		if err := r.Ready(); err != nil {
			return err
		}
	}
	return r.copyOutput(ctx, cancel)
}

// copyInput copies the client's input until it ends or fails: stdin_once is until the first client disconnects.
func (r Relay) copyInput() {
	_, _ = io.Copy(WriteOnly{r.Conn}, r.Streams.Stdin)
	if !r.KeepStdin {
		_ = r.Conn.CloseStdin()
	}
	if r.InputEnded != nil {
		r.InputEnded()
	}
}

// copyOutput copies the output to the client until it ends.
func (r Relay) copyOutput(ctx context.Context, cancel context.CancelCauseFunc) error {
	queue, written := newBacklog(r.Patience), make(chan error, 1)
	go func() {
		err := queue.drain(ctx)
		if err != nil {
			cancel(err) // the client is gone: closes the connection
		}
		written <- err
	}()
	err := r.receive(ctx, queue)
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
		return ErrSlowClient
	case <-ctx.Done():
		return context.Cause(ctx) // the writer may be blocked in a Write: the owner of the stream ends that
	}
}

// receive queues output until it ends.
func (r Relay) receive(ctx context.Context, queue *backlog) error {
	for {
		data, stderr, err := r.Conn.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		to := r.Streams.Stdout
		if stderr {
			to = r.Streams.Stderr
		}
		if err := queue.add(ctx, to, data); err != nil {
			return err
		}
	}
}
