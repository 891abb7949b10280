package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// waitReadable parks the goroutine in the runtime's poller until f, which must be non-blocking, is readable
// or ctx ends.
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

// interruptReads makes reads of f fail with os.ErrDeadlineExceeded once ctx ends. The caller calls the
// result when it has stopped reading.
func interruptReads(ctx context.Context, f *os.File) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		// An f that cannot take a deadline, or is closed, has no reader to wake.
		_ = f.SetReadDeadline(time.Unix(1, 0))
	})
}

// poll calls done with growing pauses until it is true or ctx ends. For facts that the kernel gives no event
// for, such as a cgroup v1 running empty.
func poll(ctx context.Context, done func() bool) error {
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

// pipeRest is how much is still taken from a pipe whose writers did not close it in time: all that a pipe can
// hold by default, several times.
const pipeRest = 1 << 20

// copyPipe copies from a pipe or terminal to its end, or until the deadline that was set on it and then what
// is in it already. It returns the error of w only: from has nothing to say but that it is over.
func copyPipe(w io.Writer, from *os.File) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return copyRest(w, from, buf)
		}
		if err != nil {
			return nil
		}
	}
}

// copyRest copies what can be read without waiting. A writer may have been slow, not the reader.
func copyRest(w io.Writer, from *os.File, buf []byte) error {
	raw, err := from.SyscallConn()
	if err != nil {
		return nil
	}
	for rest := pipeRest; rest > 0; {
		n := 0
		err := raw.Control(func(fd uintptr) { n, _ = unix.Read(int(fd), buf) }) // EAGAIN: n is -1
		if err != nil || n <= 0 {
			return nil
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		rest -= n
	}
	return nil
}
