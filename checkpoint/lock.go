package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Lock is a lock on a state directory. It is held until Unlock, or until the process exits.
type Lock struct{ f *os.File }

// Acquire takes the lock file at path, creating it if needed. If another process holds it, the error names that
// process; one that was killed is waited for, at most for 5 s.
func Acquire(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := flock(f); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s is held by %s: stop that process or use another state directory",
				path, describeHolder(f))
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	l := &Lock{f: f}
	if err := l.writePid(os.Getpid()); err != nil {
		f.Close()
		return nil, fmt.Errorf("write lock %s: %w", path, err)
	}
	return l, nil
}

const (
	// endWait is how long Acquire waits for a holder that was killed: it keeps its files until its last thread has left
	// the kernel.
	endWait  = 5 * time.Second
	endPause = 10 * time.Millisecond
)

func flock(f *os.File) error {
	for end := time.Now().Add(endWait); ; time.Sleep(endPause) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			return err
		}
		if pid, ok := holder(f); !ok || commandLine(pid) != "" {
			return err
		}
	}
}

// Unlock releases the lock. The file stays: if it were removed, two processes could hold two locks of one name.
func (l *Lock) Unlock() error { return l.f.Close() }

// writePid writes the holder's pid into the file, for the next process's error message.
func (l *Lock) writePid(pid int) error {
	if err := l.f.Truncate(0); err != nil {
		return err
	}
	_, err := l.f.WriteAt([]byte(strconv.Itoa(pid)+"\n"), 0)
	return err
}

// describeHolder describes the process whose pid is in the lock file.
func describeHolder(f *os.File) string {
	pid, ok := holder(f)
	if !ok {
		return "another process"
	}
	if line := commandLine(pid); line != "" {
		return fmt.Sprintf("process %d (%s)", pid, line)
	}
	return fmt.Sprintf("process %d, which was killed but has not ended", pid)
}

// holder returns the pid in the lock file.
func holder(f *os.File) (pid int, ok bool) {
	data, _ := io.ReadAll(io.NewSectionReader(f, 0, 32))
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	return pid, err == nil
}

// commandLine returns the command line of a process, "" if it exited or is about to.
func commandLine(pid int) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.ReplaceAll(strings.TrimRight(string(data), "\x00"), "\x00", " ")
}
