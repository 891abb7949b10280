package guest

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/vm/wire"
)

// makePipe creates a named pipe for the task service, which opens its other end.
func makePipe(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := unix.Mkfifo(path, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// copyOutput copies the output of the pipe to c, until all writers have closed it.
func copyOutput(c net.Conn, path string) {
	err := makePipe(path)
	wire.Answer(c, err)
	if err != nil {
		return
	}
	defer os.Remove(path)
	if r, err := os.OpenFile(path, os.O_RDONLY, 0); err == nil {
		_, _ = io.Copy(c, r)
		_ = r.Close()
	}
}

// copyInput copies c to the pipe until c ends.
func copyInput(c net.Conn, path string) {
	err := makePipe(path)
	wire.Answer(c, err)
	if err != nil {
		return
	}
	defer os.Remove(path)
	if w, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
		_, _ = io.Copy(w, c)
		_ = w.Close()
	}
}

// releasePipe ends the copy of a pipe whose other end no process will open.
func releasePipe(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0) // the other end of whichever end waits to be opened
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the copy has ended
	}
	if err != nil {
		return err
	}
	_ = os.Remove(path) // the copy may be faster
	return f.Close()
}
