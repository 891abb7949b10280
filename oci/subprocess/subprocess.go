// Package subprocess starts, limits, kills and reaps the programs that podd runs. It knows neither containers nor
// images, networks or plugins, and chooses no arguments. The packages that run a program call it.
package subprocess

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// outputDelay is how long the pipes of an exited program are read: a process that it left behind may hold them
	// open.
	outputDelay = time.Second
	// killGrace is how long a killed program may take to exit.
	killGrace = 5 * time.Second
)

// ErrUnkillable is the error of a program that does not exit after SIGKILL.
var ErrUnkillable = errors.New("process survives SIGKILL")

// Process is a program that runs, with its process group.
type Process struct {
	cmd *exec.Cmd

	mu     sync.Mutex
	reaped bool // its pid may belong to another process
}

// Start starts cmd as the leader of a process group, so that a signal to podd's group does not reach it. Wait must be
// called once.
//
// With cmd.SysProcAttr.Pdeathsig the program dies with the thread that starts it: the caller locks its goroutine to the
// thread (runtime.LockOSThread) until Wait has returned. Unlocked, a goroutine that ends its thread could run on it.
func Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = !cmd.SysProcAttr.Setsid // the leader of a session leads a group
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = outputDelay
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Process{cmd: cmd}, nil
}

// Pid is the process id of the program and the id of its group.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// State describes the exit of the program. It is nil before Wait has returned, and after ErrUnkillable.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Kill kills the process group, unless Wait has returned.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = unix.Kill(-p.Pid(), unix.SIGKILL) // fails if all have exited
	}
}

// KillLeader kills the program and not its children, unless Wait has returned.
func (p *Process) KillLeader() { _ = p.cmd.Process.Kill() }

// Wait waits for the exit of the program, and kills its group when ctx ends. It returns ctx's cause if the program
// failed after that, with ErrUnkillable if it does not exit: a goroutine then reaps it, and the writers of its output
// must not be read. Otherwise it returns the error of exec.Cmd.Wait, none for output that a child holds open.
func (p *Process) Wait(ctx context.Context) error { return p.wait(ctx, func() {}) }

// WaitGroup is Wait, except that it kills the rest of the program's group when the program exits.
func (p *Process) WaitGroup(ctx context.Context) error { return p.wait(ctx, p.Kill) }

// wait calls atExit between the exit of the program and its reaping, as long as the id of its group is valid.
func (p *Process) wait(ctx context.Context, atExit func()) error {
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		awaitExit(p.Pid())
	}()
	select {
	case <-exited:
	case <-ctx.Done():
		p.Kill()
		select {
		case <-exited:
		case <-time.After(killGrace):
			go func() {
				<-exited
				_ = p.reap()
			}()
			return fmt.Errorf("%w: %w", context.Cause(ctx), ErrUnkillable)
		}
	}
	atExit()
	err := p.reap()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

func (p *Process) reap() error {
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()
	return p.cmd.Wait()
}

// awaitExit waits until a child exits. It does not reap it: its pid and its group's id stay valid.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// Run starts cmd, see Start, and waits for its exit, see Wait. It returns the first limit bytes of stdout and of
// stderr, also with an error. Stdout or Stderr that cmd has already is used instead.
func Run(ctx context.Context, cmd *exec.Cmd, limit int64) (stdout, stderr []byte, err error) {
	return RunWatched(ctx, cmd, limit, func(int) error { return nil })
}

// RunWatched is Run, except that it calls started with the program's pid. The error of started kills the program and
// is returned.
func RunWatched(
	ctx context.Context, cmd *exec.Cmd, limit int64, started func(pid int) error,
) (stdout, stderr []byte, err error) {
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	out, errs := NewHead(limit), NewHead(limit)
	if cmd.Stdout == nil {
		cmd.Stdout = out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = errs
	}
	if cmd.SysProcAttr != nil && cmd.SysProcAttr.Pdeathsig != 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	p, err := Start(cmd)
	if err != nil {
		return nil, nil, err
	}
	if refused := started(p.Pid()); refused != nil {
		p.Kill()
		return nil, nil, errors.Join(refused, p.Wait(ctx))
	}
	err = p.Wait(ctx)
	if errors.Is(err, ErrUnkillable) {
		return nil, nil, err
	}
	return out.Bytes(), errs.Bytes(), err
}
