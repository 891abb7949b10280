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

// DescribeStuck describes a process that SIGKILL does not end, from /proc.
func (p Process) DescribeStuck() string {
	s, err := readStat(p.Pid)
	if err != nil || s.Start != p.Start {
		return fmt.Sprintf("process %d is gone, but its exit was not reported", p.Pid)
	}
	wchan, _ := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", p.Pid))
	return fmt.Sprintf("process %d (%s) survives SIGKILL in state %c, kernel function %q", p.Pid, s.name, s.state, wchan)
}
