package driver

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Output is the reading end of a pipe, FIFO or terminal. Reads end with os.ErrDeadlineExceeded at a deadline.
type Output interface {
	io.Reader
	syscall.Conn
	SetReadDeadline(t time.Time) error
}

const (
	// copyBuffer is how much is read at once.
	copyBuffer = 32 << 10
	// pipeRest is how much is still read after the deadline: several times the default capacity of a pipe.
	pipeRest = 1 << 20
)

// CopyOutput copies to the end of the output, or to the deadline that was set on it and then the data that is already
// in the pipe. It returns the error of w only: an error of from is the end of the output.
func CopyOutput(w io.Writer, from Output) error {
	buf := make([]byte, copyBuffer)
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

// copyRest copies the data that can be read without waiting: the writer may have been slow, not the reader.
func copyRest(w io.Writer, from Output, buf []byte) error {
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

// WriteOnly hides all methods except Write, so that io.Copy copies with its own buffer.
type WriteOnly struct{ io.Writer }
