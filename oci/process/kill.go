package process

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
)

// KillTimeout is how long a killed process may take to exit. One that takes longer is stuck in the kernel.
const KillTimeout = 10 * time.Second

// Kill kills the process and waits until it is gone.
func (p Process) Kill(ctx context.Context) error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, KillTimeout)
	defer cancel()
	if err := p.Wait(ctx); err != nil {
		return fmt.Errorf("%s: %w", p.DescribeStuck(), err)
	}
	return nil
}

// HangUpTime is how long a process may take to exit after SIGHUP.
const HangUpTime = 3 * time.Second

// HangUp ends a process that has lost its terminal or its user: SIGHUP to it and the members of its process group,
// after HangUpTime SIGKILL to it alone. When it leads a session, its exit hangs up the session's terminal. A group that
// another process leads is left alone; the leader may be a process of the runtime that has exited.
func (p Process) HangUp(ctx context.Context) error {
	s, err := readStat(p.Pid)
	if err != nil || s.Process != p {
		return nil
	}
	send := p.Signal
	if leader, err := readStat(s.group); s.group > 1 && (err != nil || leader.exited() || leader.Process == p) {
		send = func(sig syscall.Signal) error { return syscall.Kill(-s.group, sig) } // at once: a fork gets it, too
	}
	_ = send(syscall.SIGHUP) // it may be gone
	_ = send(syscall.SIGCONT)
	grace, cancel := context.WithTimeout(ctx, HangUpTime)
	defer cancel()
	if p.Wait(grace) == nil {
		return nil
	}
	return p.Kill(ctx)
}

// DescribeStuck describes a process that SIGKILL does not end, from /proc.
func (p Process) DescribeStuck() string {
	s, err := readStat(p.Pid)
	if err != nil || s.Start != p.Start {
		return fmt.Sprintf("process %d is gone, but its exit was not reported", p.Pid)
	}
	wchan, _ := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", p.Pid))
	return fmt.Sprintf("process %d (%s) survives SIGKILL in state %c, kernel function %q", p.Pid, s.name, s.state, wchan)
}
