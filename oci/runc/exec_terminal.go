package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/runc/conmon"
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
	rec, err := execable(b)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp(string(b), "exec-") // 0700
	if err != nil {
		return 0, fmt.Errorf("exec: %w", err)
	}
	defer os.RemoveAll(dir)
	size := firstSize(req.streams.Resize)
	s, inner, err := r.startTerminal(b, rec, dir, sized(req.process, size))
	if err != nil {
		return 0, fmt.Errorf("exec: %w", err)
	}
	cmd := monitored(ctx, s)
	cmd.killInside = r.killInside(rec, b, inner)
	cmd.launcher, _ = process.Identify(s.Process().Pid) // our child, not reaped yet
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
	case errors.Is(err, errNotStarted) && isThere(inner):
		return 0, errors.New("exec: the command ended before the runtime had noticed its start: its exit status is lost")
	case errors.Is(err, errNotStarted):
		text, _ := os.ReadFile(runtimeLog(dir))
		return 0, failure("exec", complaint(text))
	case err != nil:
		return 0, fmt.Errorf("exec: %w", err)
	case errTalk != nil:
		return 0, fmt.Errorf("exec: %w", errTalk)
	}
	return code, nil
}

// startTerminal starts the monitor of a session with all its files in dir, and returns the file of the command's pid
// under a kernel of its own too.
func (r *Runtime) startTerminal(b bundle, rec record, dir string, p *specs.Process) (*conmon.Session, string, error) {
	files, err := writeProcess(bundle(dir), p)
	if err != nil {
		return nil, "", err
	}
	e := conmon.Exec{Process: files.process, PidFile: files.pid, Terminal: dir}
	e.Runtime.Args = []string{"--log", runtimeLog(dir)}
	if rec.Sandbox != "" {
		e.Opts = []string{"--internal-pid-file=" + files.inner()}
	}
	s, err := r.startExec(b, rec, e)
	return s, files.inner(), err
}

// runtimeLog is where the runtime complains: crun's words do not come through the monitor when there is a
// terminal.
func runtimeLog(dir string) string { return filepath.Join(dir, "log") }

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

// talk connects the client to the monitor, lets the command start, and returns when its output has ended.
func talk(ctx context.Context, cancel context.CancelCauseFunc, s *conmon.Session, z oci.Size, streams oci.Streams) error {
	conn, err := s.Attach(ctx)
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	if z != (oci.Size{}) {
		// crun 1.8 ignores the size in the process description. The monitor applies this one when the terminal
		// comes, a moment before the command starts.
		_ = conmon.Resize(s.Dir(), z.Width, z.Height)
	}
	resize := func(z oci.Size) { _ = conmon.Resize(s.Dir(), z.Width, z.Height) }
	c := connection{conn: conn, resize: resize, keepInput: true}
	return c.serve(ctx, cancel, streams, s.Begin)
}
