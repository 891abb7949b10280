package conmon

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Messages of conmon's control FIFO: "<kind> <height> <width>\n".
const (
	resizeMessage = 1
	reopenMessage = 2
)

// maxSide is the largest terminal side that conmon accepts.
const maxSide = 1000

var errNoMonitor = fmt.Errorf("no monitor listens: %w", errdefs.ErrFailedPrecondition)

// Resize sets the size of the container's terminal, in characters, up to conmon's limit.
func Resize(bundle string, width, height uint16) error {
	return control(bundle, resizeMessage, min(int(height), maxSide), min(int(width), maxSide))
}

// takeBack removes the messages of a kind that the monitor has not read yet.
func takeBack(bundle string, kind int) error {
	fd, err := unix.Open(filepath.Join(bundle, "ctl"), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("control monitor: %w", err)
	}
	defer unix.Close(fd)
	buf := make([]byte, 64<<10) // the size of a pipe
	n, err := unix.Read(fd, buf)
	if errors.Is(err, unix.EAGAIN) || n == 0 {
		return nil // it has read all
	}
	if err != nil {
		return fmt.Errorf("control monitor: %w", err)
	}
	var others []byte
	for line := range bytes.Lines(buf[:n]) {
		if !bytes.HasPrefix(line, fmt.Appendf(nil, "%d ", kind)) {
			others = append(others, line...)
		}
	}
	if len(others) > 0 {
		_, err = unix.Write(fd, others)
	}
	return err
}

func control(bundle string, kind, height, width int) error {
	// Without a reader, opening for non-blocking writing fails with ENXIO instead of blocking.
	f, err := os.OpenFile(filepath.Join(bundle, "ctl"), os.O_WRONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errors.Is(err, syscall.ENXIO) || errors.Is(err, os.ErrNotExist) {
		return errNoMonitor
	}
	if err != nil {
		return fmt.Errorf("control monitor: %w", err)
	}
	defer f.Close()
	return send(f, kind, height, width)
}

// send writes a message to the monitor's FIFO. The monitor may have exited since it was opened.
func send(f *os.File, kind, height, width int) error {
	// One write below PIPE_BUF is atomic: concurrent messages do not mix.
	_, err := fmt.Fprintf(f, "%d %d %d\n", kind, height, width)
	if errors.Is(err, syscall.EPIPE) {
		return errNoMonitor
	}
	if err != nil {
		return fmt.Errorf("control monitor: %w", err)
	}
	return nil
}
