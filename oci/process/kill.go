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
		return fmt.Errorf("%s: %w", describeStuck(p), err)
	}
	return nil
}

// describeStuck describes a process that survives SIGKILL.
func describeStuck(p Process) string {
	s, _ := readStat(p.Pid)
	wchan, _ := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", p.Pid))
	return fmt.Sprintf("process %d (%s) survives SIGKILL in state %c, kernel function %q", p.Pid, s.name, s.state, wchan)
}
