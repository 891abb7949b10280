package daemon

import (
	"io"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
)

// lateResponse is what ttrpc, the protocol of shims, logs as an error when a response arrives after the call's
// deadline. The caller has reported the deadline already.
const lateResponse = "ttrpc: received message on inactive stream"

// routeContainerd makes containerd's libraries log to to, with their message in a field as those of Kubernetes.
func routeContainerd(to *logrus.Logger) {
	l := logrus.New()
	l.SetOutput(io.Discard)
	l.SetLevel(logrus.TraceLevel) // to filters by level
	l.AddHook(containerdHook{to})
	log.L = logrus.NewEntry(l)
}

// containerdHook forwards entries.
type containerdHook struct{ to *logrus.Logger }

func (containerdHook) Levels() []logrus.Level { return logrus.AllLevels }

func (h containerdHook) Fire(e *logrus.Entry) error {
	level := max(e.Level, logrus.ErrorLevel) // logging must not panic or exit
	if e.Message == lateResponse {
		level = logrus.DebugLevel
	}
	h.to.WithFields(e.Data).WithField("message", e.Message).Log(level, "containerd library")
	return nil
}
