package conmon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/containerd/errdefs"
)

// Messages of conmon's control FIFO: "<kind> <height> <width>\n".
const (
	resizeMessage = 1
	reopenMessage = 2
)

// maxSide is the largest terminal side that conmon accepts.
const maxSide = 1000

// Reopen has the monitor open its log file again. conmon creates <log>.tmp and renames it to the log, so a log that
// was not moved away is lost: callers check. errdefs.ErrFailedPrecondition if no monitor listens.
func Reopen(bundle string) error {
	return control(bundle, reopenMessage, 0, 0)
}

// Resize sets the size of the container's terminal, in characters, up to conmon's limit.
func Resize(bundle string, width, height uint16) error {
	return control(bundle, resizeMessage, min(int(height), maxSide), min(int(width), maxSide))
}

func control(bundle string, kind, height, width int) error {
	// Without a reader, opening for non-blocking writing fails with ENXIO instead of blocking.
	f, err := os.OpenFile(filepath.Join(bundle, "ctl"), os.O_WRONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errors.Is(err, syscall.ENXIO) || errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("no monitor listens: %w", errdefs.ErrFailedPrecondition)
	}
	if err != nil {
		return fmt.Errorf("control monitor: %w", err)
	}
	defer f.Close()
	// One write below PIPE_BUF is atomic: concurrent messages do not mix.
	if _, err := fmt.Fprintf(f, "%d %d %d\n", kind, height, width); err != nil {
		return fmt.Errorf("control monitor: %w", err)
	}
	return nil
}
