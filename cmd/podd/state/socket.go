package state

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sirupsen/logrus"
)

// SocketMode lets root connect, and the group, which an administrator may change. RootSocketMode lets root only.
const (
	SocketMode     = 0o660
	RootSocketMode = 0o600
)

// Socket is a listening unix socket.
type Socket struct {
	net.Listener
	path string
	made os.FileInfo
}

// freshSocket is the suffix of a socket that is not published yet.
const freshSocket = ".new"

// Listen listens on path. The socket is created under a temporary name and renamed with its mode set, so that it
// is never open to others, and path always exists for clients of a restarted daemon. A stale socket at path is
// replaced. The caller must hold the state lock, so that the socket is not that of another daemon that starts.
func Listen(path string, mode fs.FileMode, log logrus.FieldLogger) (*Socket, error) {
	if _, err := os.Lstat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
		if _, err := secureDir(filepath.Dir(path), runMode, log); err != nil {
			return nil, err
		}
	}
	if err := checkStale(path); err != nil {
		return nil, err
	}
	fresh := path + freshSocket
	if len(fresh) > 107 { // sun_path: the path itself was checked against the limit
		fresh = filepath.Join(filepath.Dir(path), "n")
	}
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it would remove the temporary name
	s := &Socket{Listener: l, path: path}
	if err := s.publish(fresh, mode); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return s, nil
}

func (s *Socket) publish(fresh string, mode fs.FileMode) error {
	if err := os.Chmod(fresh, mode); err != nil {
		return err
	}
	var err error
	if s.made, err = os.Lstat(fresh); err != nil {
		return err
	}
	return os.Rename(fresh, s.path)
}

// checkStale returns an error unless path is absent or a socket that no process listens on.
func checkStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists and is not a socket: remove it or choose another path", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
		return fmt.Errorf("another process listens on %s: stop it or choose another path", path)
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("check for another daemon: %w", err)
}

// Close stops listening and removes the socket, unless another process replaced it.
func (s *Socket) Close() error {
	err := s.Listener.Close()
	if now, statErr := os.Lstat(s.path); statErr == nil && os.SameFile(now, s.made) {
		err = errors.Join(err, os.Remove(s.path))
	}
	return err
}
