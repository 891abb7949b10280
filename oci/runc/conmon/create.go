package conmon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/podd-project/podd/oci/subprocess"
)

// stderrDelay is how long the stderr of an exited monitor is read: the runtime that it called may still hold it.
const stderrDelay = 5 * time.Second

// maxStderr bounds the part of a monitor's stderr that is kept, in bytes.
const maxStderr = 64 << 10

// Created are the processes of a new container.
type Created struct {
	// Init is the pid of the container's first process, Monitor that of conmon.
	Init, Monitor int
}

// Create starts a monitor, which calls `<runtime> create` or restore, and returns when the container is created or
// restored. An error of the runtime is a *Failure with its message. When ctx ends first, its cause is returned and the
// monitor keeps running: the caller finds it with MonitorPid.
func Create(ctx context.Context, c Container) (Created, error) {
	args, err := c.args()
	if err != nil {
		return Created{}, err
	}
	if err := linkFirst(c.Bundle, c.Log); err != nil {
		return Created{}, err
	}
	m, err := start(c.Conmon, args, c.Env, options{dir: c.Bundle, tmp: c.Bundle, outlive: c.Restore != ""})
	if err != nil {
		return Created{}, err
	}
	defer m.sync.Close()
	// conmon forks: the process that was started is gone as soon as the monitor's pid is written. Before that it opens
	// the log.
	stop := context.AfterFunc(ctx, m.process.KillLeader)
	err = m.process.Wait(context.WithoutCancel(ctx))
	stop()
	if ctx.Err() != nil {
		return Created{}, context.Cause(ctx)
	}
	if err != nil {
		return Created{}, m.failure(err)
	}
	answer, err := m.sync.read(ctx)
	if err != nil {
		return Created{}, fmt.Errorf("conmon: %w", err)
	}
	if answer.value <= 0 {
		return Created{}, &Failure{Text: answer.Message}
	}
	monitor, err := MonitorPid(c.Bundle)
	if err != nil {
		return Created{}, err
	}
	return Created{Init: answer.value, Monitor: monitor}, nil
}

// monitor is a conmon process that was just started.
type monitor struct {
	process *subprocess.Process
	sync    *syncPipe
	stderr  *subprocess.Head
}

// options are how the process is started, apart from its arguments.
type options struct {
	// dir is the working directory: conmon writes the file "oom" there.
	dir string
	// tmp is where conmon makes the socket for receiving a terminal, when the path is short enough for one.
	tmp string
	// stdio are its stdin, stdout and stderr; nil for /dev/null and monitor.stderr.
	stdio [3]*os.File
	// outlive makes the monitor go on if its caller is killed before it has reported the result of the runtime. Others
	// exit then.
	outlive bool
	// attach and begin are the pipes of an exec session with a terminal.
	attach, begin *os.File
}

// start runs conmon with a sync pipe.
func start(path string, args, env []string, o options) (*monitor, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("sync pipe: %w", err)
	}
	if o.outlive {
		if w, err = withReader(w); err != nil {
			r.Close()
			return nil, fmt.Errorf("sync pipe: %w", err)
		}
	}
	defer w.Close()
	stderr := subprocess.NewHead(maxStderr)
	cmd := exec.Command(path, args...)
	cmd.Dir = o.dir
	cmd.ExtraFiles = []*os.File{w} // descriptor 3
	cmd.Env = append(slices.Clone(env), "_OCI_SYNCPIPE=3")
	if o.attach != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, o.attach, o.begin)
		cmd.Env = append(cmd.Env, "_OCI_ATTACHPIPE=4", "_OCI_STARTPIPE=5")
	}
	if tmp := socketDir(o.tmp); tmp != "" {
		cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
	}
	cmd.Stderr, cmd.WaitDelay = stderr, stderrDelay
	if o.stdio[2] != nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = o.stdio[0], o.stdio[1], o.stdio[2]
	}
	if o.stdio[0] == nil {
		cmd.Stdin = nil // an *os.File of nil in the interface would not be nil
	}
	// It leads a process group. A container's monitor makes itself a session after its fork.
	var p *subprocess.Process
	err = subprocess.Neutral(func() (err error) { p, err = subprocess.Start(cmd); return err })
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("start conmon: %w", err)
	}
	return &monitor{process: p, sync: newSyncPipe(r), stderr: stderr}, nil
}

// withReader reopens the write end of a pipe for reading and writing. conmon exits on EPIPE, which a pipe gives only
// when no process has it open for reading: conmon itself has now. Our read end still gets EOF when conmon closes its.
func withReader(w *os.File) (*os.File, error) {
	defer w.Close()
	return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", w.Fd()), os.O_RDWR, 0)
}

// failure is the error of a conmon that failed before it forked.
func (m *monitor) failure(err error) error {
	if text := bytes.TrimSpace(m.stderr.Bytes()); len(text) > 0 {
		return fmt.Errorf("conmon: %s", bytes.ToValidUTF8(text, []byte("?")))
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("conmon: %s", exit.ProcessState)
	}
	return fmt.Errorf("conmon: %w", err)
}

// socketDir returns dir if the path of conmon's terminal socket in it fits into a socket address of 108 bytes; conmon
// would truncate it without an error.
func socketDir(dir string) string {
	if len(dir)+len("/conmon-term.XXXXXX") < 108 {
		return dir
	}
	return ""
}
