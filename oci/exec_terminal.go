package oci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/conmon"
)

// firstSizeTime is how long the client's first size is waited for: a program that asks for the size once asks
// at its start.
const firstSizeTime = 50 * time.Millisecond

// execTerminal runs a command with a terminal, under a monitor that holds the terminal: the same for every
// runtime, and a client is attached to it as to a container.
func (r *Runtime) execTerminal(ctx context.Context, cancel context.CancelCauseFunc, req execRequest) (int32, error) {
	b, err := r.bundle(req.id)
	if err != nil {
		return 0, err
	}
	if err := execable(b); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp(string(b), "exec-") // 0700
	if err != nil {
		return 0, fmt.Errorf("exec: %w", err)
	}
	defer os.RemoveAll(dir)
	size := firstSize(req.streams.Resize)
	files, err := writeProcess(bundle(dir), sized(req.process, size))
	if err != nil {
		return 0, err
	}
	e := conmon.Exec{Process: files.process, PidFile: files.pid, Terminal: dir}
	// crun's complaint does not come through the monitor when there is a terminal.
	log := filepath.Join(dir, "log")
	e.Runtime.Args = []string{"--log", log}
	s, err := r.startExec(b, e)
	if err != nil {
		return 0, fmt.Errorf("exec: %w", err)
	}
	cmd := monitored(ctx, s)
	cmd.launcher, _ = identify(s.Process().Pid) // our child, not reaped yet
	talked := make(chan error, 1)
	go func() {
		err := talk(ctx, cancel, s, size, req.streams)
		if err != nil {
			cancel(err) // kills the command
		}
		talked <- err
	}()
	code, err := cmd.wait(ctx)
	errTalk := <-talked // ends with the monitor, or with ctx
	switch {
	case errors.Is(err, errNotStarted):
		text, _ := os.ReadFile(log)
		return 0, failure("exec", complaint(text))
	case err != nil:
		return 0, fmt.Errorf("exec: %w", err)
	case errTalk != nil:
		return 0, fmt.Errorf("exec: %w", errTalk)
	}
	return code, nil
}

// firstSize is the client's first size if it comes soon, else nothing.
func firstSize(sizes <-chan Size) Size {
	if sizes == nil {
		return Size{}
	}
	timer := time.NewTimer(firstSizeTime)
	defer timer.Stop()
	select {
	case z := <-sizes:
		return z
	case <-timer.C:
		return Size{}
	}
}

// sized is the process with that size.
func sized(p *specs.Process, z Size) *specs.Process {
	if z == (Size{}) {
		return p
	}
	copied := *p
	copied.ConsoleSize = &specs.Box{Width: uint(z.Width), Height: uint(z.Height)}
	return &copied
}

// talk connects the client to the monitor, lets the command start, and returns when its output has ended.
func talk(ctx context.Context, cancel context.CancelCauseFunc, s *conmon.Session, z Size, streams Streams) error {
	conn, err := s.Attach(ctx)
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	if z != (Size{}) {
		// crun 1.8 ignores the size in the process description. The monitor applies this one when the terminal
		// comes, a moment before the command starts.
		_ = conmon.Resize(s.Dir(), z.Width, z.Height)
	}
	c := connection{conn: conn, dir: s.Dir(), keepInput: true}
	return c.serve(ctx, cancel, streams, s.Begin)
}
