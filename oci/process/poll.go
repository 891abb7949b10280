package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// waitReadable parks the goroutine in the runtime's poller until f, which must be non-blocking, is readable or ctx
// ends.
func waitReadable(ctx context.Context, f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	stop := interruptReads(ctx, f)
	defer stop()
	var pollErr error
	err = raw.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			pollErr = err
			return true
		}
		return n > 0
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err = errors.Join(err, pollErr); err != nil {
		return fmt.Errorf("wait for %s: %w", f.Name(), err)
	}
	return nil
}

// interruptReads makes reads of f fail with os.ErrDeadlineExceeded when ctx ends. The caller calls stop when it has
// stopped reading.
func interruptReads(ctx context.Context, f *os.File) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		// A file without deadlines, or a closed one, has no reader to interrupt.
		_ = f.SetReadDeadline(time.Unix(1, 0))
	})
}

// Poll calls done with increasing pauses until it is true or ctx ends. It is for conditions without a kernel event,
// such as an empty cgroup of v1.
func Poll(ctx context.Context, done func() bool) error {
	pause := time.Millisecond
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		if done() {
			return nil
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		pause = min(2*pause, 50*time.Millisecond)
	}
}
