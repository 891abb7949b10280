package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/shim/fifo"
)

const (
	// firstSizeTime is how long the client's first size is waited for: a program that asks for the size once asks at its
	// start.
	firstSizeTime = 50 * time.Millisecond
	// clientTime is how long a client may take for the last output after the command has ended.
	clientTime = 30 * time.Second
)

// errSlowClient ends the session of a client that does not read.
var errSlowClient = errors.New("client does not take the output")

// Exec runs one command in a running container, connected to a client, and returns its exit status when it has ended and
// its output is written. p.Terminal says whether it gets a terminal. When ctx ends first, as it should when the client
// is gone, the command is killed, as by ExecSync. Errors are those of ExecSync.
func (r *Runtime) Exec(ctx context.Context, id string, p *specs.Process, streams oci.Streams) (int32, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s, rec, err := r.newSession(ctx, id, p, streams.Stdin != nil)
	if err != nil {
		return 0, err
	}
	defer s.close()
	copied := s.copyAll(cancel, streams)
	size := oci.Size{}
	if p.Terminal {
		size = firstSize(streams.Resize)
	}
	if err := s.start(ctx, sized(p, size), rec.Shim); err != nil {
		return 0, err
	}
	if p.Terminal {
		defer s.follow(ctx, size, streams.Resize)()
	}
	if s.stdin != nil {
		go func() {
			_, _ = io.Copy(writeOnly{s.stdin}, streams.Stdin)
			s.closeInput(ctx)
		}()
	}
	code, err := s.wait(ctx)
	s.finish()
	if errOutput := copied.wait(); err == nil {
		err = errOutput
	}
	if err != nil {
		return 0, fmt.Errorf("exec: %w", err)
	}
	return code, nil
}

// writeOnly hides all but Write, so that io.Copy copies in pieces of its own.
type writeOnly struct{ io.Writer }

// copies are the copies of a session's output that are under way.
type copies struct {
	n    int
	done chan error
}

// copyAll begins to copy the output to the client. A client that is gone ends the session.
func (s *session) copyAll(cancel context.CancelCauseFunc, streams oci.Streams) copies {
	c := copies{done: make(chan error, 2)}
	for _, p := range []struct {
		from *fifo.Reader
		to   io.Writer
	}{{s.stdout, streams.Stdout}, {s.stderr, streams.Stderr}} {
		if p.from == nil {
			continue
		}
		c.n++
		go func() {
			err := copyOutput(func(data []byte) error {
				if p.to == nil {
					return nil
				}
				_, err := p.to.Write(data)
				return err
			}, p.from)
			if err != nil {
				err = fmt.Errorf("client is gone: %w", err)
				cancel(err)
			}
			c.done <- err
		}()
	}
	return c
}

// wait waits for the copies to end. One that hangs in the client is left: the owner of the stream ends it.
func (c copies) wait() error {
	timer := time.NewTimer(clientTime)
	defer timer.Stop()
	var errs []error
	for range c.n {
		select {
		case err := <-c.done:
			errs = append(errs, err)
		case <-timer.C:
			return errors.Join(append(errs, errSlowClient)...)
		}
	}
	return errors.Join(errs...)
}

// firstSize is the client's first size if it comes soon, else nothing.
func firstSize(sizes <-chan oci.Size) oci.Size {
	if sizes == nil {
		return oci.Size{}
	}
	timer := time.NewTimer(firstSizeTime)
	defer timer.Stop()
	select {
	case z := <-sizes:
		return z
	case <-timer.C:
		return oci.Size{}
	}
}

// sized is the process with that size.
func sized(p *specs.Process, z oci.Size) *specs.Process {
	if z == (oci.Size{}) {
		return p
	}
	copied := *p
	copied.ConsoleSize = &specs.Box{Width: uint(z.Width), Height: uint(z.Height)}
	return &copied
}

// follow applies the client's sizes to the terminal, once it is there, until stop is called.
func (s *session) follow(ctx context.Context, size oci.Size, sizes <-chan oci.Size) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if size != (oci.Size{}) {
				s.resize(ctx, size)
			}
			var ok bool
			select {
			case size, ok = <-sizes:
				if !ok {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}
