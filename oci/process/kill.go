package process

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
)

// killTimeout bounds how long a killed process may take to go; one that takes longer is stuck in the kernel.
const KillTimeout = 10 * time.Second

// Kill kills the process and waits until it is gone.
func (p Process) Kill(ctx context.Context) error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, KillTimeout)
	defer cancel()
	if err := p.Wait(ctx); err != nil {
		return fmt.Errorf("%s: %w", stuck(p), err)
	}
	return nil
}

// stuck describes a process that SIGKILL does not end.
func stuck(p Process) string {
	s, _ := readStat(p.Pid)
	wchan, _ := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", p.Pid))
	return fmt.Sprintf("process %d (%s) survives SIGKILL in state %c, kernel function %q", p.Pid, s.name, s.state, wchan)
}
