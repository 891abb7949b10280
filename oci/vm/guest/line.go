package guest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/vm/guest/env"
	"github.com/podd-project/podd/oci/vm/wire"
)

// line is the connection to the host.
type line struct {
	io.ReadWriteCloser
	raw *os.File
}

// greet tells the host that the agent reads now.
func (l *line) greet() error {
	if _, err := l.raw.WriteString(wire.Hello); err != nil {
		return fmt.Errorf("greet the host: %w", err)
	}
	return nil
}

// openLine opens the device that leads to the host.
func openLine() (*line, error) {
	path, serial := os.Getenv(env.Port), true
	if path == "" {
		serial = false
		var err error
		if path, err = findVirtioPort(); err != nil {
			return nil, err
		}
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	if !serial {
		return &line{f, f}, nil
	}
	if err := setRaw(fd); err != nil {
		return nil, fmt.Errorf("%s: raw mode: %w", path, err)
	}
	return &line{wire.NewPaced(f), f}, nil
}

// setRaw has the terminal pass all bytes unchanged.
func setRaw(fd int) error {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	t.Iflag, t.Oflag, t.Lflag, t.Cflag = 0, 0, 0, unix.CS8|unix.CREAD|unix.CLOCAL
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return unix.IoctlSetTermios(fd, unix.TCSETS, t)
}

const (
	// portTimeout is how long the virtio port may take to appear.
	portTimeout = 10 * time.Second
	portPause   = 2 * time.Millisecond
)

// findVirtioPort waits for the port named env.VirtioPort.
func findVirtioPort() (string, error) {
	for end := time.Now().Add(portTimeout); time.Now().Before(end); time.Sleep(portPause) {
		names, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
		for _, n := range names {
			if b, _ := os.ReadFile(n); strings.TrimSpace(string(b)) == env.VirtioPort {
				return "/dev/" + filepath.Base(filepath.Dir(n)), nil
			}
		}
	}
	return "", fmt.Errorf("no virtio port is named %s", env.VirtioPort)
}
