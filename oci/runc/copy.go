package runc

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

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
