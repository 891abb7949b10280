package admin

import (
	"fmt"
	"net"
	"os"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// rootOnly is a listener of a unix socket that closes the connections of other users than podd's own, root. The mode of
// the socket keeps them out already; an administrator may change it by mistake.
type rootOnly struct {
	net.Listener
	log logrus.FieldLogger
}

// Accept returns the next connection of podd's user.
func (l rootOnly) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, err := peerOf(c)
		if err == nil && int(peer.Uid) == os.Geteuid() {
			return c, nil
		}
		log := l.log
		if err == nil {
			log = log.WithField("uid", peer.Uid).WithField("pid", peer.Pid)
		}
		log.WithError(err).Warn("refused a connection to the admin socket")
		_ = c.Close()
	}
}

// peerOf returns who connected, as the kernel recorded it then.
func peerOf(c net.Conn) (*unix.Ucred, error) {
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
