// Package fifo reads and writes named pipes whose other end is a shim, which may open it late, never, or again.
//
// A Reader waits for its first writer without a thread and sees the end when the last writer is gone. The package
// knows no container. Packages shim and stdio use it.
package fifo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Make creates a named pipe for root only.
func Make(path string) error {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return fmt.Errorf("make fifo %s: %w", path, err)
	}
	return nil
}

// Reader is the reading end of a named pipe.
type Reader struct{ f *os.File }

// Open opens the pipe for reading without waiting for a writer.
func Open(path string) (*Reader, error) {
	f, err := open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return &Reader{f}, nil
}

// Write opens the pipe for writing without waiting for a reader. The file is a reader too, so the data stays in
// the pipe until it is read.
func Write(path string) (*os.File, error) { return open(path, os.O_RDWR) }

// WriteOnly closes f, which Write opened, and returns a file in its place that is not a reader. The data stays in the
// pipe. If that file is closed before another process has opened the pipe for reading, its data is lost, and a reader
// that comes later waits forever for a writer: see HasReader.
func WriteOnly(f *os.File) (*os.File, error) {
	defer f.Close()
	return open(f.Name(), os.O_WRONLY)
}

// HasReader reports whether the pipe of w, which WriteOnly returned, is open for reading.
func HasReader(w *os.File) bool {
	raw, err := w.SyscallConn()
	if err != nil {
		return false
	}
	var fds [1]unix.PollFd
	var errPoll error
	err = raw.Control(func(fd uintptr) {
		fds[0].Fd = int32(fd)
		_, errPoll = unix.Poll(fds[:], 0)
	})
	// pipe(7): POLLERR is set while there is no reader. A signal may have interrupted the call, which says nothing.
	return err == nil && errPoll == nil && fds[0].Revents&unix.POLLERR == 0
}

// open refuses a file that is not a pipe: reads of a device or a regular file would not wait, or not end.
func open(path string, flag int) (*os.File, error) {
	// Non-blocking: opening does not wait for the other end, and reads and writes wait in the runtime's poller.
	f, err := os.OpenFile(path, flag|syscall.O_NONBLOCK|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode()&os.ModeNamedPipe == 0 {
		err = fmt.Errorf("%s is not a FIFO", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Read waits for data or the end: io.EOF if there was a writer and none is left. Before the first writer it waits. A
// read deadline ends the wait with os.ErrDeadlineExceeded.
func (r *Reader) Read(p []byte) (int, error) {
	raw, err := r.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	n, errRead := 0, error(nil)
	err = raw.Read(func(fd uintptr) bool {
		// poll(2) distinguishes two cases that read(2) does not: a pipe that never had a writer gives 0 bytes, too.
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		// EINTR: there was nothing when a signal came. The Go runtime sends signals to itself.
		if ready, err := unix.Poll(fds, 0); ready == 0 || errors.Is(err, unix.EINTR) {
			return false
		}
		n, errRead = unix.Read(int(fd), p)
		return !errors.Is(errRead, unix.EAGAIN) && !errors.Is(errRead, unix.EINTR)
	})
	switch {
	case err != nil:
		return 0, err
	case errRead != nil:
		return 0, &os.PathError{Op: "read", Path: r.f.Name(), Err: errRead}
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// SyscallConn gives access to the descriptor, for reads that do not wait.
func (r *Reader) SyscallConn() (syscall.RawConn, error) { return r.f.SyscallConn() }

// SetReadDeadline ends reads at t.
func (r *Reader) SetReadDeadline(t time.Time) error { return r.f.SetReadDeadline(t) }

// Close ends a Read under way.
func (r *Reader) Close() error { return r.f.Close() }
