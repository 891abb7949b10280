package runc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/subprocess"
)

// Exec runs a command in a running container, connected to a client, and returns its exit code when it has exited and
// its output is written. p.Terminal gives it a terminal. When ctx ends first, as it should when the client is gone,
// the command is ended as by a terminal that hangs up: see hangUp. Errors are those of ExecSync.
func (r *Runtime) Exec(ctx context.Context, id string, p *specs.Process, s oci.Streams) (int32, error) {
	if err := r.awaitDump(ctx, id); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if p.Terminal {
		return r.execTerminal(ctx, cancel, execRequest{id, p, s})
	}
	e, err := newExecIO(s)
	if err != nil {
		return 0, fmt.Errorf("exec: %w", err)
	}
	defer e.close()
	cmd, err := r.launchCommand(ctx, id, p, e.child, r.cfg.ExecCgroups)
	if err != nil {
		return 0, err
	}
	e.stderr = &commandStderr{
		ctx: ctx, client: cmp.Or(s.Stderr, io.Discard), pipe: e.ours[2], command: cmd, held: subprocess.NewHead(outputLimit),
	}
	e.startCopies(ctx, cancel, s)
	code, err := cmd.waitExit(ctx, cmd.hangUp)
	errOutput := e.copies.Drain()
	if errOutput == nil && !errors.Is(err, errNotStarted) {
		errOutput = e.stderr.pass()
	}
	switch {
	case errors.Is(err, errNotStarted) && errOutput == nil:
		return 0, cmd.notStarted(e.stderr.held.Bytes())
	case err != nil:
		return 0, fmt.Errorf("exec: %w", err)
	case errOutput != nil:
		return 0, fmt.Errorf("exec: %w", errOutput)
	}
	return code, nil
}

// execRequest is one call of Exec.
type execRequest struct {
	id      string
	process *specs.Process
	streams oci.Streams
}

// execIO holds the pipes between a command and its client.
type execIO struct {
	// child are the command's ends of stdin, stdout and stderr, ours the other ends.
	child, ours [3]*os.File
	copies      *driver.Copies
	stderr      *commandStderr
}

func newExecIO(s oci.Streams) (e *execIO, err error) {
	e = &execIO{}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	if s.Stdin != nil {
		if e.child[0], e.ours[0], err = os.Pipe(); err != nil {
			return nil, err
		}
	}
	for i := 1; i <= 2; i++ {
		if e.ours[i], e.child[i], err = os.Pipe(); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// startCopies starts to copy. The command must have been started: its ends are closed here.
func (e *execIO) startCopies(ctx context.Context, cancel context.CancelCauseFunc, s oci.Streams) {
	e.closeChild()
	if s.Stdin != nil {
		go e.copyInput(s.Stdin)
	}
	e.copies = driver.NewCopies(ctx, cancel)
	e.copies.Start(s.Stdout, e.ours[1], true)
	e.copies.Start(e.stderr, e.ours[2], s.Stderr != nil)
}

// copyInput copies the client's input and ends that of the command.
func (e *execIO) copyInput(from io.Reader) {
	if driver.CopyInput(e.ours[0], from) {
		e.ours[0].Close()
	}
}

func (e *execIO) closeChild() {
	for _, f := range e.child {
		if f != nil {
			f.Close()
		}
	}
}

func (e *execIO) close() {
	e.closeChild()
	for _, f := range e.ours {
		if f != nil {
			f.Close()
		}
	}
}
