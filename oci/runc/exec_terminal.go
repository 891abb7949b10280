package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/cgroups"
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
	dir, err := os.MkdirTemp(b.Dir(), commandPattern(ctx)) // 0700
	if err != nil {
		return 0, fmt.Errorf("exec: %w", err)
	}
	defer os.RemoveAll(dir)
	excuse, size := b.watchOOMs(rec), driver.FirstSize(req.streams.Resize)
	var group *cgroups.ExecGroup
	if r.cfg.ExecCgroups && rec.Sandbox == "" {
		group = r.newExecGroup(rec, dir)
	}
	s, files, err := r.startTerminal(ctx, b, rec, terminal{dir, driver.WithSize(req.process, size), group})
	if err != nil {
		group.Remove()
		return 0, fmt.Errorf("exec: %w", err)
	}
	cmd := monitoredCommand(ctx, s)
	cmd.group, cmd.init, cmd.pidFile, cmd.excuseOOMs = group, rec.Init, files.pid, excuse
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

// terminal is a session with all its files in dir.
type terminal struct {
	dir     string
	process *specs.Process
	group   *cgroups.ExecGroup
}

// startTerminal starts the monitor of a session.
func (r *Runtime) startTerminal(
	ctx context.Context, b bundle, rec record, t terminal,
) (*conmon.Session, execFiles, error) {
	files, err := writeProcess(ctx, t.dir, t.process)
	if err != nil {
		return nil, files, err
	}
	e := conmon.Exec{Process: files.process, PidFile: files.pid, Terminal: t.dir, Opts: execGroupOpts(t.group)}
	e.Runtime.Args = []string{"--log", runtimeLog(t.dir)}
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
