package process

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Peer returns the process at the other end of a unix socket, as the kernel recorded it when the connection was made
// (SO_PEERCRED, unix(7)): the one that connected, or for the client's end the one that listened.
func Peer(c net.Conn) (*unix.Ucred, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("connection is a %T, want one of a unix socket", c)
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil, err
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err != nil {
		return nil, err
	}
	return peer, failed
}
