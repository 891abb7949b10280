package streaming

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// certificate is a key pair on disk, read again when the mtime of a file changes: certificates are renewed while the
// daemon runs.
type certificate struct {
	certFile, keyFile string
	log               logrus.FieldLogger

	mu     sync.Mutex
	stamp  [2]time.Time
	loaded *tls.Certificate
}

// loadCertificate reads the pair once, so that an invalid one fails at start.
func loadCertificate(certFile, keyFile string, log logrus.FieldLogger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log}
	stamp, err := c.stamps()
	if err == nil {
		err = c.read(stamp)
	}
	if err != nil {
		return nil, fmt.Errorf("load streaming certificate: %w", err)
	}
	return c, nil
}

// get is tls.Config.GetCertificate. While the pair cannot be read, e.g. during a renewal, the old one is used.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stamp, err := c.stamps()
	if err == nil && stamp != c.stamp {
		err = c.read(stamp)
	}
	if err != nil {
		c.log.WithError(err).Warn("failed to reload streaming certificate, still using the old one")
	}
	return c.loaded, nil
}

func (c *certificate) stamps() (stamp [2]time.Time, err error) {
	for i, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return stamp, err
		}
		stamp[i] = info.ModTime()
	}
	return stamp, nil
}

func (c *certificate) read(stamp [2]time.Time) error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	c.loaded, c.stamp = &pair, stamp
	return nil
}
