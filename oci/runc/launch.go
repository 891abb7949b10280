package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/runc/conmon"
	"github.com/podd-project/podd/oci/subprocess"
)

// errNotStarted means that the runtime did not start the command. The reason is on the command's stderr.
var errNotStarted = errors.New("command was not started")

// launchedCommand is a command that was launched in a container. waitExit must be called exactly once, and frees
// everything.
type launchedCommand struct {
	// init is the container's first process.
	init process.Process
	// launcher is the ancestor of all the command's processes: runtime or monitor.
	launcher process.Process
	// signalInSandbox signals the command where the host cannot reach it, by one of the flags --pgid= and --pid=; nil on
	// the host's kernel.
	signalInSandbox func(ctx context.Context, flag, signal string)
	// pidFile has the command's pid on the host.
	pidFile string
	// exitStatus waits for the command's exit status, release for the launcher's end.
	exitStatus func() (int32, error)
	release    func()
	// excuseOOMs notes out-of-memory kills during the command: they did not end the container.
	excuseOOMs func()
	// group holds the command, if it has a separate cgroup. paths are removed afterwards.
	group *cgroups.ExecGroup
	paths []string
}

// launchCommand runs the command with the given stdin, stdout and stderr, which the caller closes; isolated in a
// separate cgroup if that is asked for, and the runtime and the machine support it.
//
// There are two ways, because of commands that leave a child behind. crun's exec passes its descriptors to the command
// and returns the exit status when the command exits: it is run directly. runc's copies the output itself and would
// not return before the child closes it, so conmon runs `runc exec --detach` and reports the status. That is as fast
// and needs less memory, because runc is gone while the command runs.
func (r *Runtime) launchCommand(
	ctx context.Context, id string, p *specs.Process, stdio [3]*os.File, isolated bool,
) (*launchedCommand, error) {
	b, err := r.bundle(id)
	if err != nil {
		return nil, err
	}
	rec, err := checkRunning(b)
	if err != nil {
		return nil, err
	}
	if rec.Sandbox == "" {
		if err := chownExecPipes(rec.Init, p, stdio); err != nil {
			return nil, fmt.Errorf("exec: %w", err)
		}
	}
	files, err := writeProcess(ctx, b.Dir(), p)
	if err != nil {
		return nil, err
	}
	var group *cgroups.ExecGroup
	if isolated && rec.Sandbox == "" {
		group = r.newExecGroup(rec, files.process)
		files.opts = execGroupOpts(group)
	}
	how := r.launchMonitored
	switch {
	case rec.Sandbox != "":
		how = r.launchInSandbox
	case r.capabilities().directExec:
		how = r.launchDirect
	}
	excuse := b.watchOOMs(rec)
	cmd, child, err := how(ctx, b, files, stdio)
	if err != nil {
		group.Remove()
		removeFiles(files.all())
		return nil, fmt.Errorf("exec: %w", err)
	}
	cmd.excuseOOMs = excuse
	cmd.init, cmd.group, cmd.paths, cmd.pidFile = rec.Init, group, files.all(), files.pid
	// Our child has not been reaped, so its pid is valid, and this cannot fail.
	cmd.launcher, _ = process.Identify(child)
	return cmd, nil
}

// checkRunning returns why no command can be run in the container: a runtime's exec would hang in a paused one.
func checkRunning(b bundle) (record, error) {
	rec, err := b.load()
	switch {
	case err != nil:
		return record{}, err
	case !rec.Init.Alive():
		return record{}, fmt.Errorf("container %s is not running: %w", b.ID(), errdefs.ErrFailedPrecondition)
	case b.frozen(rec):
		return record{}, fmt.Errorf("container %s is paused: %w", b.ID(), errdefs.ErrFailedPrecondition)
	}
	return rec, nil
}

// execFiles are the files of one exec in the bundle, and further options of the runtime's exec.
type execFiles struct {
	process, pid string
	opts         []string
}

// innerPidFile is where a runtime with its own kernel writes the command's pid in that kernel.
func (f execFiles) innerPidFile() string { return innerPidFile(f.pid) }

func innerPidFile(pidFile string) string { return pidFile + ".inner" }

func (f execFiles) all() []string { return []string{f.process, f.pid, f.innerPidFile()} }

// writeProcess writes the process description where the runtime can read it.
func writeProcess(ctx context.Context, dir string, p *specs.Process) (execFiles, error) {
	data, err := driver.PlainJSON(p)
	if err != nil {
		return execFiles{}, fmt.Errorf("encode process: %w", err)
	}
	f, err := os.CreateTemp(dir, commandPattern(ctx)+".json") // 0600: it holds the environment
	if err != nil {
		return execFiles{}, fmt.Errorf("write process: %w", err)
	}
	files := execFiles{process: f.Name(), pid: strings.TrimSuffix(f.Name(), ".json") + ".pid"}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(files.process)
		return execFiles{}, fmt.Errorf("write process: %w", err)
	}
	return files, nil
}

func removeFiles(paths []string) {
	for _, path := range paths {
		_ = os.RemoveAll(path)
	}
}

func (r *Runtime) launchMonitored(
	ctx context.Context, b bundle, f execFiles, stdio [3]*os.File,
) (*launchedCommand, int, error) {
	s, err := r.startExec(b, record{}, conmon.Exec{
		Process: f.process, PidFile: f.pid, Opts: f.opts, Stdin: stdio[0], Stdout: stdio[1], Stderr: stdio[2],
	})
	if err != nil {
		return nil, 0, err
	}
	return monitoredCommand(ctx, s), s.Process().Pid(), nil
}

// startExec starts a session. It fills in the fields that all sessions of a container share.
func (r *Runtime) startExec(b bundle, rec record, e conmon.Exec) (s *conmon.Session, err error) {
	e.ID, e.Bundle, e.Env = b.ID(), b.Dir(), driver.Environment()
	e.Runtime.Args = append(r.globalArgs(), e.Runtime.Args...)
	if e.Runtime.Path, err = r.lookup(r.cfg.Path); err != nil {
		return nil, err
	}
	if rec.Sandbox != "" {
		e.Runtime = r.viaInitProxy(e.Runtime, "")
	}
	if e.Conmon, err = r.lookup(r.cfg.Conmon); err != nil {
		return nil, err
	}
	return conmon.StartExec(e)
}

// monitoredCommand returns the command of a session.
func monitoredCommand(ctx context.Context, s *conmon.Session) *launchedCommand {
	ctx = context.WithoutCancel(ctx) // ending it kills the monitor, which ends the reading
	status := func() (int32, error) {
		var none *conmon.Failure
		_, err := s.Pid(ctx)
		switch {
		case errors.As(err, &none) && none.Text != "":
			return 0, driver.Failure("exec", driver.Complaint([]byte(none.Text)))
		case errors.As(err, &none):
			return 0, errNotStarted
		case err != nil:
			return 0, err
		}
		return s.Status(ctx)
	}
	return &launchedCommand{exitStatus: status, release: func() { _ = s.Close() }}
}

func (r *Runtime) launchDirect(
	_ context.Context, b bundle, f execFiles, stdio [3]*os.File,
) (*launchedCommand, int, error) {
	path, err := r.lookup(r.cfg.Path)
	if err != nil {
		return nil, 0, err
	}
	command := []string{"exec", "--process", f.process, "--pid-file", f.pid}
	args := slices.Concat(r.globalArgs(), command, f.opts, []string{b.ID()})
	cmd := exec.Command(path, args...)
	cmd.Env, cmd.Dir = driver.Environment(), b.Dir()
	if stdio[0] != nil {
		cmd.Stdin = stdio[0]
	}
	cmd.Stdout, cmd.Stderr = stdio[1], stdio[2]
	// A group, not a session: the kernel's autogroups delay the first run of a new session on a busy machine.
	var child *subprocess.Process
	err = subprocess.Neutral(func() (err error) { child, err = subprocess.Start(cmd); return err })
	if err != nil {
		return nil, 0, err
	}
	status := func() (int32, error) {
		_ = child.Wait(context.Background()) // its error is in the state: the descriptors are files, nothing is copied
		if _, err := os.Stat(f.pid); err != nil {
			return 0, errNotStarted
		}
		ws := child.State().Sys().(syscall.WaitStatus)
		if ws.Signaled() {
			return 0, fmt.Errorf("%s was killed by signal %d", filepath.Base(path), ws.Signal())
		}
		return int32(ws.ExitStatus()), nil
	}
	return &launchedCommand{exitStatus: status, release: func() {}}, child.Pid(), nil
}

// waitExit returns the command's exit code. When ctx ends first, it calls end, which is killAll or hangUp, and returns
// ctx's cause.
func (c *launchedCommand) waitExit(ctx context.Context, end func()) (int32, error) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		end()
	})
	code, err := c.exitStatus()
	if !stop() {
		<-ended
	}
	if code != 0 || err != nil {
		c.excuseOOMs()
	}
	c.release()
	c.group.Remove()
	removeFiles(c.paths)
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	return code, c.ended(err)
}

// notStarted returns the error of a command that the runtime did not start, from the output of the runtime.
func (c *launchedCommand) notStarted(printed []byte) error {
	return c.ended(driver.Failure("exec", driver.Complaint(printed)))
}

// ended makes err an errdefs.ErrFailedPrecondition if the container exits: runtimes report that by the first thing that
// they miss, such as its cgroup.
func (c *launchedCommand) ended(err error) error {
	if err == nil || errors.Is(err, errNotStarted) || errdefs.IsFailedPrecondition(err) ||
		errors.Is(err, oci.ErrCommand) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), driver.ExitTime)
	defer cancel()
	if process.Poll(ctx, c.init.Exiting) != nil {
		return err
	}
	return fmt.Errorf("container has exited: %w: %w", errdefs.ErrFailedPrecondition, err)
}

// killAll kills the command's cgroup, the launcher and its descendants, and then processes that the launcher has put
// into the cgroup in the meantime.
func (c *launchedCommand) killAll() {
	ctx, cancel := context.WithTimeout(context.Background(), driver.UndoTimeout)
	defer cancel()
	c.awaitStart(ctx)
	c.group.Kill(ctx)
	if c.signalInSandbox != nil { // both may fail; children of the command are in its group unless they left it
		c.signalInSandbox(ctx, "--pgid=", "KILL")
		c.signalInSandbox(ctx, "--pid=", "KILL")
	}
	_ = c.launcher.KillTree(ctx)
	c.group.Kill(ctx)
}

// hangUp ends a command whose client is gone, as process.HangUp does: what its user has started with nohup or in
// another session goes on. One that the runtime has not started yet is killed with the runtime.
func (c *launchedCommand) hangUp() {
	info, err := os.Stat(c.pidFile)
	if err != nil || info.Size() == 0 && c.signalInSandbox == nil { // crun makes the file before it writes it
		c.killAll()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), driver.UndoTimeout)
	defer cancel()
	if c.signalInSandbox == nil {
		c.hangUpProcess(ctx)
	} else {
		c.signalInSandbox(ctx, "--pgid=", "HUP")
		if !c.exitsWithin(ctx, process.HangUpTime) {
			c.signalInSandbox(ctx, "--pid=", "KILL")
		}
	}
	if !c.exitsWithin(ctx, launcherTime) {
		_ = c.launcher.Signal(syscall.SIGKILL) // it waits for something that the command has left
	}
}

// hangUpProcess hangs up the command, unless it has exited.
func (c *launchedCommand) hangUpProcess(ctx context.Context) {
	text, _ := os.ReadFile(c.pidFile)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	if command, err := process.Identify(pid); err == nil && command.DescendsFrom(c.launcher) {
		_ = command.HangUp(ctx)
	}
}

// awaitStart waits until the runtime has written the command's pid, or the launcher has ended. A sandbox starts a
// command also after the launcher has ended, and then its pid is lost. A command of crun may have lost its parent
// before it is in its cgroup.
func (c *launchedCommand) awaitStart(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	file := c.pidFile
	if c.signalInSandbox != nil {
		file = innerPidFile(file)
	}
	_ = process.Poll(ctx, func() bool {
		info, err := os.Stat(file)
		return err == nil && info.Size() > 0 || !c.launcher.Alive()
	})
}

// startTime is how long a runtime may take to start a command that is to be killed.
const startTime = 5 * time.Second

// launcherTime is how long the launcher may take to exit after its command.
const launcherTime = time.Second

// exitsWithin reports whether the launcher exits within that time, which it does after the command.
func (c *launchedCommand) exitsWithin(ctx context.Context, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return c.launcher.Wait(ctx) == nil
}
