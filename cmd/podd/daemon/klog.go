package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"
	"k8s.io/klog/v2"
)

// routeKlog makes Kubernetes' libraries, which log through klog to standard error, log to log.
func routeKlog(log *logrus.Logger) {
	klog.SetSlogLogger(slog.New(klogHandler{
		entry: logrus.NewEntry(log), warnings: &rate.Sometimes{First: klogBurst, Interval: klogInterval},
	}))
}

// Clients can cause messages of libraries, as often as they like. After klogBurst warnings, one is logged per
// klogInterval, and the others at level debug.
const (
	klogBurst    = 100
	klogInterval = 10 * time.Second
)

// klogHandler logs a library's message as a field: it is not constant and may contain a client's data. klog does not
// distinguish warnings from information, most of which concerns clients that misbehave; both are logged at level debug.
type klogHandler struct {
	entry    *logrus.Entry
	warnings *rate.Sometimes
}

func (h klogHandler) level(l slog.Level) logrus.Level {
	if l >= slog.LevelError {
		return logrus.WarnLevel
	}
	return logrus.DebugLevel
}

func (h klogHandler) Enabled(_ context.Context, l slog.Level) bool {
	return h.entry.Logger.IsLevelEnabled(h.level(l))
}

func (h klogHandler) Handle(_ context.Context, r slog.Record) error {
	entry := h.entry.WithField("message", bound(r.Message))
	r.Attrs(func(a slog.Attr) bool {
		entry = entry.WithField(a.Key, bound(a.Value.String()))
		return true
	})
	level := h.level(r.Level)
	if level == logrus.WarnLevel {
		level = logrus.DebugLevel
		h.warnings.Do(func() { level = logrus.WarnLevel })
	}
	entry.Log(level, "kubernetes library")
	return nil
}

func (h klogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.entry = h.entry.WithField(a.Key, a.Value.String())
	}
	return h
}

func (h klogHandler) WithGroup(string) slog.Handler { return h }
