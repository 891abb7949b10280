package tracing

import (
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// complaintInterval is the least time between two log lines about a collector that takes no spans.
const complaintInterval = time.Minute

// complaints logs why spans are lost, and not too often.
type complaints struct {
	log logrus.FieldLogger

	mu     sync.Mutex // guards what follows
	last   time.Time
	silent int
}

// say complains of err.
func (c *complaints) say(err error) {
	c.mu.Lock()
	if !c.last.IsZero() && time.Since(c.last) < complaintInterval {
		c.silent++
		c.mu.Unlock()
		return
	}
	silent := c.silent
	c.last, c.silent = time.Now(), 0
	c.mu.Unlock()
	c.log.WithError(err).WithField("notLogged", silent).Warn("spans cannot be sent")
}
