package ocitest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
)

// ExecSync implements Runtime.
func (f *Fake) ExecSync(ctx context.Context, req oci.ExecRequest) (oci.ExecResult, error) {
	if req.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, req.Timeout)
		defer cancel()
	}
	if err := f.execable(ctx, req.ID); err != nil {
		return oci.ExecResult{}, err
	}
	if f.Answer != nil {
		return f.Answer(ctx, req)
	}
	var out bytes.Buffer
	code, err := runProgram(ctx, req.Process, oci.Streams{Stdout: &out})
	if err != nil {
		return oci.ExecResult{}, err
	}
	if req.Limit > 0 && int64(out.Len()) > req.Limit {
		out.Truncate(int(req.Limit))
	}
	return oci.ExecResult{Stdout: out.Bytes(), Code: code}, nil
}

// Exec implements Runtime. There are no terminals; Resize is not read.
func (f *Fake) Exec(ctx context.Context, id string, p *specs.Process, s oci.Streams) (int32, error) {
	if err := f.execable(ctx, id); err != nil {
		return 0, err
	}
	return runProgram(ctx, p, s)
}

// execable runs the verb exec, which has no effect on the container.
func (f *Fake) execable(ctx context.Context, id string) error {
	return f.with(ctx, "exec", id, func(c *fakeContainer) error {
		if c.status != oci.Running && c.status != oci.Created {
			return fmt.Errorf("container %s is %s: %w", id, c.status, errdefs.ErrFailedPrecondition)
		}
		return nil
	})
}

// Attach implements Runtime. What a container of the fake prints it prints at its start, so that a client gets
// nothing but the end.
func (f *Fake) Attach(ctx context.Context, id string, _ oci.Streams) error {
	var done chan struct{}
	err := f.with(ctx, "attach", id, func(c *fakeContainer) error {
		if c.status == oci.Stopped {
			return fmt.Errorf("container %s is not running: %w", id, errdefs.ErrFailedPrecondition)
		}
		done = c.done
		return nil
	})
	if err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("attach to container %s: %w", id, context.Cause(ctx))
	}
}

// runProgram runs a command for an exec. Like the real one it does not wait for input that nobody sends once ctx
// has ended.
func runProgram(ctx context.Context, process *specs.Process, s oci.Streams) (int32, error) {
	p, err := parse(process.Args)
	if err != nil {
		return 0, fmt.Errorf("exec: %w", err)
	}
	timer := time.NewTimer(p.lasts)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return 0, fmt.Errorf("exec: %w", context.Cause(ctx))
	case <-timer.C:
	}
	if err := printed(ctx, p, s); err != nil {
		return 0, fmt.Errorf("exec: %w", err)
	}
	return p.code, nil
}

// printed passes on what the program prints, and what it is given if it copies that.
func printed(ctx context.Context, p program, s oci.Streams) error {
	if s.Stdout == nil {
		return nil
	}
	if _, err := io.WriteString(s.Stdout, p.output); err != nil || !p.copies || s.Stdin == nil {
		return err
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(s.Stdout, s.Stdin)
		copied <- err
	}()
	select {
	case err := <-copied:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
