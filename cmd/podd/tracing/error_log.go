package tracing

import (
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// logInterval is the least time between two log entries about lost spans.
const logInterval = time.Minute

// errorLog logs why spans are lost, at most once in logInterval.
type errorLog struct {
	log logrus.FieldLogger

	mu         sync.Mutex // guards the fields below
	last       time.Time
	suppressed int
}

// Handle logs err, or counts it as suppressed. It implements otel.ErrorHandler.
func (l *errorLog) Handle(err error) {
	l.mu.Lock()
	if !l.last.IsZero() && time.Since(l.last) < logInterval {
		l.suppressed++
		l.mu.Unlock()
		return
	}
	suppressed := l.suppressed
	l.last, l.suppressed = time.Now(), 0
	l.mu.Unlock()
	l.log.WithError(err).WithField("suppressed", suppressed).Warn("failed to send spans")
}
