package shim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/driver/socket"
	"github.com/podd-project/podd/oci/process"
)

// parseAddress checks a shim's address: unix:// and an absolute path. An abstract socket could be any process's, and
// other transports are for shims on other machines.
func parseAddress(address string) (string, error) {
	path, ok := strings.CutPrefix(address, "unix://")
	if !ok || !filepath.IsAbs(path) || filepath.Clean(path) != path || len(path) > socket.MaxPath ||
		strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("shim address %.160q: %w", address, errdefs.ErrInvalidArgument)
	}
	return path, nil
}

// checkSocket refuses a file that is not a socket which only root can have made and can use.
func checkSocket(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("shim socket: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if info.Mode()&os.ModeSocket == 0 || !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("shim socket %s (%s) is accessible to other users: %w", path, info.Mode(),
			errdefs.ErrFailedPrecondition)
	}
	return nil
}

// dialSocket connects to a shim's socket, and verifies that the listener runs as our user.
func dialSocket(ctx context.Context, path string) (*net.UnixConn, error) {
	if err := checkSocket(path); err != nil {
		return nil, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connect to shim: %w", err)
	}
	conn := c.(*net.UnixConn)
	peer, err := process.Peer(conn)
	if err == nil && int(peer.Uid) != os.Geteuid() {
		err = fmt.Errorf("the socket belongs to user %d: %w", peer.Uid, errdefs.ErrFailedPrecondition)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("connect to shim: %w", err)
	}
	return conn, nil
}

// removeSocket removes the socket of a dead shim.
func removeSocket(path string) error {
	if path == "" || checkSocket(path) != nil {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove shim socket: %w", err)
	}
	return nil
}
