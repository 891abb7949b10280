// Package socket opens Unix sockets by paths of any length. The kernel takes 107 bytes of a socket's path, so the
// directory is named by a descriptor, /proc/self/fd/N. It is independent of containers.
package socket

import (
	"fmt"
	"net"
	"os"
)

// MaxPath is the length of the longest path of a socket, in bytes (unix(7)).
const MaxPath = 107

// Dial connects to the socket name in dir. The network is "unix" or "unixpacket".
func Dial(network, dir, name string) (*net.UnixConn, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return net.DialUnix(network, nil, address(network, d, name))
}

// Listen makes the socket name in dir. It must not exist, and is not removed when the listener is closed.
func Listen(network, dir, name string) (*net.UnixListener, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	l, err := net.ListenUnix(network, address(network, d, name))
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // the descriptor in the path is closed by then
	return l, nil
}

func address(network string, dir *os.File, name string) *net.UnixAddr {
	return &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name), Net: network}
}
