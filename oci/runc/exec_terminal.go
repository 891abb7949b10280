package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/runc/conmon"
)

// execTerminal runs a command with a terminal, which a monitor holds: this works the same with every runtime, and a
// client attaches to it as to a container.
func (r *Runtime) execTerminal(ctx context.Context, cancel context.CancelCauseFunc, req execRequest) (int32, error) {
	b, err := r.bundle(req.id)
	if err != nil {
		return 0, err
	}
	rec, err := checkRunning(b)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp(b.Dir(), ownCommand) // 0700
	if err != nil {
		return 0, fmt.Errorf("exec: %w", err)
	}
	defer os.RemoveAll(dir)
	excuse, size := b.watchOOMs(rec), driver.FirstSize(req.streams.Resize)
	s, files, err := r.startTerminal(b, rec, dir, driver.WithSize(req.process, size))
	if err != nil {
		return 0, fmt.Errorf("exec: %w", err)
	}
	cmd := monitoredCommand(ctx, s)
	cmd.init, cmd.pidFile, cmd.excuseOOMs = rec.Init, files.pid, excuse
	cmd.signalInSandbox = r.signalInSandbox(rec, b, files.innerPidFile())
	cmd.launcher, _ = process.Identify(s.Process().Pid()) // our child, not reaped yet
	relayed := make(chan error, 1)
	go func() {
		err := relayTerminal(ctx, s, size, req.streams)
		if err != nil {
			cancel(err) // ends the command
		}
		relayed <- err
	}()
	code, err := cmd.waitExit(ctx, cmd.hangUp)
	errRelay := <-relayed // ends with the monitor, or with ctx
	switch {
	case errors.Is(err, errNotStarted) && driver.FileExists(files.innerPidFile()):
		return 0, errors.New("exec: the command exited before the runtime noticed its start: its exit status is lost")
	case errors.Is(err, errNotStarted):
		text, _ := os.ReadFile(runtimeLog(dir))
		return 0, cmd.notStarted(text)
	case err != nil:
		return 0, fmt.Errorf("exec: %w", err)
	case errRelay != nil:
		return 0, fmt.Errorf("exec: %w", errRelay)
	}
	return code, nil
}

// startTerminal starts the monitor of a session with all its files in dir.
func (r *Runtime) startTerminal(
	b bundle, rec record, dir string, p *specs.Process,
) (*conmon.Session, execFiles, error) {
	files, err := writeProcess(dir, p)
	if err != nil {
		return nil, files, err
	}
	e := conmon.Exec{Process: files.process, PidFile: files.pid, Terminal: dir}
	e.Runtime.Args = []string{"--log", runtimeLog(dir)}
	if rec.Sandbox != "" {
		e.Opts = []string{"--internal-pid-file=" + files.innerPidFile()}
	}
	s, err := r.startExec(b, rec, e)
	return s, files, err
}

// runtimeLog is the runtime's log: with a terminal, crun's messages do not pass through the monitor.
func runtimeLog(dir string) string { return filepath.Join(dir, "log") }

// relayTerminal connects the client to the monitor, lets the command start, and returns at the end of its output.
func relayTerminal(ctx context.Context, s *conmon.Session, z oci.Size, streams oci.Streams) error {
	conn, err := s.Attach(ctx)
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	resize := func(z oci.Size) { _ = conmon.Resize(s.Dir(), z.Width, z.Height) }
	if z != (oci.Size{}) {
		// crun 1.8 ignores the size in the process description. The monitor applies this one when it gets the terminal,
		// shortly before the command starts.
		resize(z)
	}
	return driver.Relay{
		Conn: conn, Streams: streams, Resize: resize, KeepStdin: true, Patience: driver.Forever, Ready: s.Begin,
	}.Run(ctx)
}
