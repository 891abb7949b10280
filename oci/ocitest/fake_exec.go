package ocitest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
)

// ExecSync implements Runtime.
func (f *Fake) ExecSync(ctx context.Context, req oci.ExecRequest) (result oci.ExecResult, err error) {
	if req.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, req.Timeout)
		defer cancel()
	}
	err = f.exec(ctx, req, func(ctx context.Context) (err error) {
		if f.Answer != nil {
			result, err = f.Answer(ctx, req)
			return err
		}
		var out bytes.Buffer
		result.Code, err = runProgram(ctx, req.Process, oci.Streams{Stdout: &out})
		if req.Limit > 0 && int64(out.Len()) > req.Limit {
			out.Truncate(int(req.Limit))
		}
		result.Stdout = out.Bytes()
		return err
	})
	if err != nil {
		return oci.ExecResult{}, err
	}
	return result, nil
}

// Exec implements Runtime. There are no terminals; Resize is not read.
func (f *Fake) Exec(ctx context.Context, id string, p *specs.Process, s oci.Streams) (code int32, err error) {
	err = f.exec(ctx, oci.ExecRequest{ID: id, Process: p}, func(ctx context.Context) (err error) {
		code, err = runProgram(ctx, p, s)
		return err
	})
	return code, err
}

// errKilled ends a command whose container exits.
var errKilled = errors.New("the container has exited")

// exec runs the verb exec, which has no effect on the container.
func (f *Fake) exec(ctx context.Context, req oci.ExecRequest, run func(context.Context) error) error {
	return f.hooked(ctx, "exec", req.ID, func() error {
		var exited <-chan struct{}
		f.mu.Lock()
		err := f.find(req.ID, func(c *fakeContainer) error {
			if c.status != oci.Running && c.status != oci.Created {
				return fmt.Errorf("container %s is %s: %w", req.ID, c.status, errdefs.ErrFailedPrecondition)
			}
			f.execs = append(f.execs, req)
			exited = c.done
			return nil
		})
		f.mu.Unlock()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		go func() {
			select {
			case <-exited:
				cancel(errKilled)
			case <-ctx.Done():
			}
		}()
		return run(ctx)
	})
}

// Attach implements Runtime. A client of a command that copies its input is connected to it. Other commands print at
// their start, before a client can attach.
func (f *Fake) Attach(ctx context.Context, id string, s oci.Streams) error {
	return f.hooked(ctx, "attach", id, func() error {
		f.mu.Lock()
		err := f.find(id, func(c *fakeContainer) error {
			if c.status == oci.Stopped {
				return fmt.Errorf("container %s is not running: %w", id, errdefs.ErrFailedPrecondition)
			}
			return nil
		})
		c := f.containers[id]
		f.mu.Unlock()
		if err != nil {
			return err
		}
		if err := f.copyInput(ctx, c, s); err != nil {
			return fmt.Errorf("attach to container %s: %w", id, err)
		}
		select {
		case <-c.done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("attach to container %s: %w", id, context.Cause(ctx))
		}
	})
}

// copyInput connects a client to a container whose command copies its input. With StdinOnce the command ends when the
// client closes its input.
func (f *Fake) copyInput(ctx context.Context, c *fakeContainer, s oci.Streams) error {
	if !c.program.copies || !c.req.Stdin || s.Stdin == nil {
		return nil
	}
	if err := printed(ctx, c.program, s); err != nil {
		return err
	}
	if c.req.StdinOnce {
		f.mu.Lock()
		defer f.mu.Unlock()
		c.end(c.program.code)
	}
	return nil
}

// runProgram runs a command for an exec. Like the real one it stops waiting for input once ctx has ended.
func runProgram(ctx context.Context, process *specs.Process, s oci.Streams) (int32, error) {
	p, err := parse(process.Args)
	if err != nil {
		return 0, fmt.Errorf("exec: %w", err)
	}
	timer := time.NewTimer(p.lasts)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		if cause := context.Cause(ctx); !errors.Is(cause, errKilled) {
			return 0, fmt.Errorf("exec: %w", cause)
		}
		return killedCode, nil
	case <-timer.C:
	}
	if err := printed(ctx, p, s); err != nil {
		return 0, fmt.Errorf("exec: %w", err)
	}
	return p.code, nil
}

// printed writes the program's output to the client, and the client's input if the program copies it.
func printed(ctx context.Context, p program, s oci.Streams) error {
	if s.Stdout == nil {
		return nil
	}
	if _, err := io.WriteString(s.Stdout, p.output); err != nil || !p.copies || s.Stdin == nil {
		return err
	}
	copied := make(chan error, 1)
	go func() {
		if _, err := io.Copy(s.Stdout, s.Stdin); err != nil {
			return // broken input has no end: the command waits until ctx ends
		}
		copied <- nil
	}()
	select {
	case err := <-copied:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
