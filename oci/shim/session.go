package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/shim/fifo"
	"github.com/podd-project/podd/oci/shim/stdio"
)

// session is a command that runs in a container, connected by pipes in a directory of the bundle. Only the caller uses
// its output, so the daemon reads it itself.
type session struct {
	conn   *conn
	id     string
	execID string
	dir    string
	// There is no stderr with a terminal, and no stdin if the command has none.
	stdout, stderr *fifo.Reader
	stdin          *os.File
	// excuseOOMs notes out-of-memory kills during the command: they did not end the container.
	excuseOOMs func()
	// process is the command's, if the host shows it.
	process process.Process
	// first are the first processes of the container and of its pod, which the session never kills.
	first []process.Process
	// ownKernel is true if the command does not run in the host's kernel.
	ownKernel bool
	// background runs functions that no caller waits for, removeDir removes dir.
	background func(func())
	removeDir  func()
}

// newSession creates the pipes.
func (r *Runtime) newSession(
	ctx context.Context, id string, p *specs.Process, stdin bool,
) (s *session, rec record, err error) {
	rec, conn, err := r.reachContainer(ctx, id)
	if err != nil {
		return nil, rec, err
	}
	if err := r.checkRunning(ctx, rec, id); err != nil {
		return nil, rec, err
	}
	b, err := r.bundle(id)
	if err != nil {
		return nil, rec, err
	}
	dir, err := r.openSession(ctx, b)
	if err != nil {
		return nil, rec, fmt.Errorf("exec: %w", err)
	}
	s = &session{
		conn: conn, id: id, execID: filepath.Base(dir), dir: dir, ownKernel: !r.cfg.HostKernel,
		first: r.firstProcesses(rec), background: r.runBackground, removeDir: func() { r.closeSession(dir) },
	}
	s.excuseOOMs = b.WatchOOMs(func() uint64 { return r.oomKills(b, rec) }, rec.Init)
	defer func() {
		if err != nil {
			s.closeFiles()
		}
	}()
	if s.stdout, err = s.openOutput(stdio.Stdout); err != nil {
		return nil, rec, err
	}
	if !p.Terminal {
		if s.stderr, err = s.openOutput(stdio.Stderr); err != nil {
			return nil, rec, err
		}
	}
	if stdin {
		if err = fifo.Make(filepath.Join(dir, stdio.Stdin)); err != nil {
			return nil, rec, err
		}
		s.stdin, err = fifo.Write(filepath.Join(dir, stdio.Stdin))
	}
	return s, rec, err
}

func (s *session) openOutput(name string) (*fifo.Reader, error) {
	path := filepath.Join(s.dir, name)
	if err := fifo.Make(path); err != nil {
		return nil, err
	}
	return fifo.Open(path)
}

// checkRunning returns why no command can be run in the container.
func (r *Runtime) checkRunning(ctx context.Context, rec record, id string) error {
	status, err := r.queryStatus(ctx, rec, id)
	if err == nil && status == oci.Running {
		return nil
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	if status == "" {
		status = oci.Stopped
	}
	return fmt.Errorf("container %s is %s, not running: %w", id, status, errdefs.ErrFailedPrecondition)
}

// startCommand has the shim run the command.
func (s *session) startCommand(ctx context.Context, p *specs.Process, shim process.Process) error {
	spec, err := anyProcess(p)
	if err != nil {
		return err
	}
	request := &task.ExecProcessRequest{
		ID: s.id, ExecID: s.execID, Terminal: p.Terminal, Stdout: filepath.Join(s.dir, stdio.Stdout), Spec: spec,
	}
	if s.stderr != nil {
		request.Stderr = filepath.Join(s.dir, stdio.Stderr)
	}
	if s.stdin != nil {
		request.Stdin = filepath.Join(s.dir, stdio.Stdin)
	}
	if err := s.conn.call(ctx, "Exec", request, empty()); err != nil {
		return s.commandError(ctx, err)
	}
	response := &task.StartResponse{}
	err = s.callStart(ctx, response)
	s.noteProcess(response.GetPid(), shim)
	if err == nil {
		return nil
	}
	undo := func() { s.killCommand(); s.deleteCommand() }
	err = s.commandError(ctx, err)
	if errdefs.IsFailedPrecondition(err) {
		s.background(undo) // the shim may never report the end of a command in an exited container
	} else {
		undo()
	}
	return err
}

// commandError is the error of a call that starts the command: that the container has exited, if the shim says so by
// not knowing it, or if it exits and nothing else explains the error. Runtimes report the first thing that they miss.
func (s *session) commandError(ctx context.Context, err error) error {
	failure := runtimeError(ctx, err)
	if errors.Is(failure, oci.ErrCommand) || ctx.Err() != nil || !s.hasExited(err, failure) {
		return fmt.Errorf("exec: %w", failure)
	}
	return fmt.Errorf("exec: container %s has exited, and is not running: %s: %w", s.id, failure.Error(),
		errdefs.ErrFailedPrecondition)
}

// hasExited reports whether the exit of the container explains err, of which failure is the kind.
func (s *session) hasExited(err, failure error) bool {
	switch {
	case errors.Is(err, errExited):
		return true
	case errdefs.IsFailedPrecondition(failure): // the shim has its own reason
		return false
	}
	return errdefs.IsNotFound(err) || s.containerExits()
}

// containerExits reports whether the container exits within driver.ExitTime. The host does not see processes in a
// sandbox: the shim reports their exits, which takes longer.
func (s *session) containerExits() bool {
	within := driver.ExitTime
	if s.ownKernel {
		within *= 5
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if !s.ownKernel {
		return process.Poll(ctx, s.first[0].Exiting) == nil
	}
	_, err := s.conn.waitExit(ctx, s.id, "")
	return err == nil || errdefs.IsNotFound(err)
}

// errExited is the cause of the end of a call whose answer a shim owes for an exited container.
var errExited = fmt.Errorf("no answer after the exit of the container: %w", errdefs.ErrFailedPrecondition)

// whileRunning returns a context that also ends, by errExited, some time after the exit of the container: shims may
// take long to answer then.
func (s *session) whileRunning(ctx context.Context, grace time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		if _, err := s.conn.waitExit(ctx, s.id, ""); err == nil {
			time.AfterFunc(grace, func() { cancel(errExited) })
		}
	}()
	return ctx, func() { cancel(nil) }
}

// firstProcesses returns the first processes of a container and of its pod.
func (r *Runtime) firstProcesses(rec record) []process.Process {
	first := []process.Process{rec.Init}
	if owner, err := r.bundle(rec.Owner); err == nil {
		if pod, err := owner.load(); err == nil {
			first = append(first, pod.Init)
		}
	}
	return first
}

// noteProcess keeps the command's process, which the shim reports, if it may be killed: not one that stands for more
// than the command. The shim of a virtual machine reports the hypervisor's pid for every command.
func (s *session) noteProcess(pid uint32, shim process.Process) {
	own := ownProcess(pid, shim)
	if s.ownKernel || own == shim || slices.Contains(s.first, own) {
		return
	}
	s.process = own
}

// callStart is the call that starts the command. It does not end with ctx: the shim would kill the runtime in the
// middle, and its children would continue, unknown to the shim.
func (s *session) callStart(ctx context.Context, response *task.StartResponse) error {
	running, stop := s.whileRunning(context.WithoutCancel(ctx), driver.ExitTime)
	defer stop()
	err := s.conn.call(running, "Start", &task.StartRequest{ID: s.id, ExecID: s.execID}, response)
	if ended := contextEnd(ctx); ended != nil {
		return ended
	}
	return err
}

// waitExit returns the command's exit code. When ctx ends first, it calls end, which is killCommand or hangUp, and
// returns ctx's cause.
func (s *session) waitExit(ctx context.Context, end func()) (int32, error) {
	running, stop := s.whileRunning(ctx, driver.ReapTimeout)
	defer stop()
	response, err := s.conn.waitExit(running, s.id, s.execID)
	if ctx.Err() != nil {
		end()
		s.excuseOOMs()
		s.deleteCommand()
		return 0, context.Cause(ctx)
	}
	s.deleteCommand()
	if err != nil {
		return 0, err
	}
	exit := parseExit(response.GetExitStatus(), response.GetExitedAt())
	if exit.Code != 0 {
		s.excuseOOMs()
	}
	if !exit.Known {
		return 0, fmt.Errorf("the shim reports exit status %d: %w", response.GetExitStatus(), errdefs.ErrUnknown)
	}
	return exit.Code, nil
}

// killCommand kills the command with all descendants where the host shows them, otherwise by the shim alone.
func (s *session) killCommand() {
	ctx, cancel := context.WithTimeout(context.Background(), driver.UndoTimeout)
	defer cancel()
	if s.process != (process.Process{}) {
		_ = s.process.KillTree(ctx)
	}
	s.killByShim(ctx)
}

// hangUp ends a command whose client is gone, as process.HangUp does: what its user has started with nohup or in
// another session goes on.
func (s *session) hangUp() {
	ctx, cancel := context.WithTimeout(context.Background(), driver.UndoTimeout)
	defer cancel()
	if s.process != (process.Process{}) {
		_ = s.process.HangUp(ctx)
	} else {
		s.signal(ctx, syscall.SIGHUP)
		if s.exitsWithin(ctx, process.HangUpTime) {
			return
		}
	}
	s.killByShim(ctx)
}

func (s *session) signal(ctx context.Context, sig syscall.Signal) {
	_ = s.conn.call(ctx, "Kill", &task.KillRequest{ID: s.id, ExecID: s.execID, Signal: uint32(sig)}, empty())
}

// killByShim has the shim kill the command until it has exited: a shim deletes only exited processes, and while it
// starts a command, it reports a kill that had no effect.
func (s *session) killByShim(ctx context.Context) {
	s.signal(ctx, syscall.SIGKILL)
	for pause := firstKillPause; !s.exitsWithin(ctx, pause) && ctx.Err() == nil; pause *= 2 {
		s.signal(ctx, syscall.SIGKILL)
	}
}

// firstKillPause is how long a killed command may take to exit before it is killed again; it doubles each time.
const firstKillPause = 50 * time.Millisecond

// exitsWithin reports whether the command exits within that time.
func (s *session) exitsWithin(ctx context.Context, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	_, _ = s.conn.waitExit(ctx, s.id, s.execID)
	return ctx.Err() == nil // an error of the shim's is an end, too: there is nothing to wait for
}

// deleteCommand has the shim delete the command in the background: the call waits for all that hold the output open.
func (s *session) deleteCommand() {
	s.background(func() {
		request := &task.DeleteRequest{ID: s.id, ExecID: s.execID}
		_ = s.conn.call(context.Background(), "Delete", request, &task.DeleteResponse{})
	})
}

// resizeTerminal sets the size of the command's terminal.
func (s *session) resizeTerminal(ctx context.Context, z oci.Size) {
	// An exited command has no terminal.
	request := &task.ResizePtyRequest{
		ID: s.id, ExecID: s.execID, Width: uint32(z.Width), Height: uint32(z.Height),
	}
	_ = s.conn.call(ctx, "ResizePty", request, empty())
}

// closeInput ends the command's input: both our end of the pipe and the shim's are closed. The shim of runc opens the
// pipe for reading some time after it has said that the command is started: input that was closed before was lost.
func (s *session) closeInput(ctx context.Context) {
	if w, err := fifo.WriteOnly(s.stdin); err == nil {
		_ = process.Poll(ctx, func() bool { return fifo.HasReader(w) })
		_ = w.Close()
	}
	_ = s.conn.call(ctx, "CloseIO", &task.CloseIORequest{ID: s.id, ExecID: s.execID, Stdin: true}, empty())
}

// limitOutput ends the reading of output after driver.DrainTime.
func (s *session) limitOutput() {
	end := time.Now().Add(driver.DrainTime)
	_ = s.stdout.SetReadDeadline(end)
	if s.stderr != nil {
		_ = s.stderr.SetReadDeadline(end)
	}
}

func (s *session) closeFiles() {
	for _, f := range []*fifo.Reader{s.stdout, s.stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
	if s.stdin != nil {
		_ = s.stdin.Close() // may be closed already
	}
	s.removeDir()
}
