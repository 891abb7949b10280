package shim

import (
	"context"
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
)

// Exec runs a command in a running container, connected to a client, and returns its exit code when it has exited and
// its output is written. p.Terminal gives it a terminal. When ctx ends first, as it should when the client is gone,
// the command is ended as by a terminal that hangs up: see hangUp. Errors are those of ExecSync.
func (r *Runtime) Exec(ctx context.Context, id string, p *specs.Process, streams oci.Streams) (int32, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s, rec, err := r.newSession(ctx, id, p, streams.Stdin != nil)
	if err != nil {
		return 0, err
	}
	defer s.closeFiles()
	copied := s.copyAll(ctx, cancel, streams, p.Terminal)
	size := oci.Size{}
	if p.Terminal {
		size = driver.FirstSize(streams.Resize)
	}
	if err := s.startCommand(ctx, driver.WithSize(p, size), rec.Shim); err != nil {
		return 0, err
	}
	if p.Terminal {
		defer s.followSizes(ctx, size, streams.Resize)()
	}
	if s.stdin != nil {
		go func() {
			if driver.CopyInput(s.stdin, streams.Stdin) && !p.Terminal { // a terminal's user types ^D
				s.closeInput(ctx)
			}
		}()
	}
	code, err := s.waitExit(ctx, s.hangUp)
	if errOutput := copied.Drain(); err == nil {
		err = errOutput
	}
	if err != nil {
		return 0, fmt.Errorf("exec: %w", err)
	}
	return code, nil
}

// copyAll starts to copy the output to the client. A client that is gone ends the session. Late output of a terminal is
// not waited for: its user could not end it.
func (s *session) copyAll(
	ctx context.Context, cancel context.CancelCauseFunc, streams oci.Streams, terminal bool,
) *driver.Copies {
	copies := driver.NewCopies(ctx, cancel)
	copies.Start(streams.Stdout, s.stdout, !terminal)
	if s.stderr != nil {
		copies.Start(streams.Stderr, s.stderr, true)
	}
	return copies
}

// followSizes applies the client's sizes to the terminal, once it exists, until stop is called.
func (s *session) followSizes(ctx context.Context, size oci.Size, sizes <-chan oci.Size) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if size != (oci.Size{}) {
			s.resizeTerminal(ctx, size)
		}
		driver.FollowSizes(ctx, sizes, func(z oci.Size) { s.resizeTerminal(ctx, z) })
	}()
	return func() { cancel(); <-done }
}
