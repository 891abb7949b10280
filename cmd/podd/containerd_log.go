package main

import (
	"io"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
)

// lateAnswer is what ttrpc, by which shims are spoken to, calls an error: the answer to a call that nobody waits for any
// more, as when it came after the call's deadline. Who made the call has said so already.
const lateAnswer = "ttrpc: received message on inactive stream"

// routeContainerd makes containerd's libraries log here, with their words in a field as those of Kubernetes'.
func routeContainerd(to *logrus.Logger) {
	l := logrus.New()
	l.SetOutput(io.Discard)
	l.SetLevel(logrus.TraceLevel) // podd's own logger decides
	l.AddHook(containerdHook{to})
	log.L = logrus.NewEntry(l)
}

// containerdHook hands entries on.
type containerdHook struct{ to *logrus.Logger }

func (containerdHook) Levels() []logrus.Level { return logrus.AllLevels }

func (h containerdHook) Fire(e *logrus.Entry) error {
	level := max(e.Level, logrus.ErrorLevel) // a library that panics or exits does so by itself
	if e.Message == lateAnswer {
		level = logrus.DebugLevel
	}
	h.to.WithFields(e.Data).WithField("message", e.Message).Log(level, "containerd library")
	return nil
}
