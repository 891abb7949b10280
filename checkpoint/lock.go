package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Lock is a lock on a state directory. It is held until Unlock, or until the process exits.
type Lock struct{ f *os.File }

// Acquire takes the lock file at path, creating it if needed. If another process holds it, the error names that
// process.
func Acquire(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s is held by %s: stop that process or use another state directory",
				path, describeHolder(f))
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	l := &Lock{f: f}
	if err := l.writePid(); err != nil {
		f.Close()
		return nil, fmt.Errorf("write lock %s: %w", path, err)
	}
	return l, nil
}

// Unlock releases the lock. The file stays: if it were removed, two processes could hold two locks of one name.
func (l *Lock) Unlock() error { return l.f.Close() }

// writePid writes this process's pid into the file, for the next process's error message.
func (l *Lock) writePid() error {
	if err := l.f.Truncate(0); err != nil {
		return err
	}
	_, err := l.f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// describeHolder describes the process whose pid is in the lock file.
func describeHolder(f *os.File) string {
	data, _ := io.ReadAll(io.LimitReader(f, 32))
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return "another process"
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return fmt.Sprintf("process %d", pid)
	}
	args := strings.ReplaceAll(strings.TrimRight(string(cmdline), "\x00"), "\x00", " ")
	return fmt.Sprintf("process %d (%s)", pid, args)
}
