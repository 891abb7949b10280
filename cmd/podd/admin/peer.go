package admin

import (
	"net"
	"os"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/oci/process"
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
		peer, err := process.Peer(c)
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
