package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/intel/goresctrl/pkg/blockio"
	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"
	"k8s.io/klog/v2"
)

// routeKlog makes Kubernetes' libraries, which log through klog to standard error, log to log, and goresctrl.
func routeKlog(log *logrus.Logger) {
	handler := libraryHandler{
		entry: logrus.NewEntry(log), warnings: &rate.Sometimes{First: libraryBurst, Interval: libraryInterval},
		text: "kubernetes library", warn: slog.LevelError,
	}
	klog.SetSlogLogger(slog.New(handler))
	handler.text, handler.warn = "block I/O classes", slog.LevelWarn
	blockio.SetLogger(slog.New(handler))
}

// Clients can cause messages of libraries, as often as they like. After libraryBurst warnings, one is logged per
// libraryInterval, and the others at level debug.
const (
	libraryBurst    = 100
	libraryInterval = 10 * time.Second
)

// libraryHandler logs a library's message as a field: it is not constant and may contain a client's data. klog does not
// distinguish warnings from information, most of which concerns clients that misbehave; both are logged at level debug.
type libraryHandler struct {
	entry    *logrus.Entry
	warnings *rate.Sometimes
	// text is the constant message, warn the least level of warnings.
	text string
	warn slog.Level
}

func (h libraryHandler) level(l slog.Level) logrus.Level {
	if l >= h.warn {
		return logrus.WarnLevel
	}
	return logrus.DebugLevel
}

func (h libraryHandler) Enabled(_ context.Context, l slog.Level) bool {
	return h.entry.Logger.IsLevelEnabled(h.level(l))
}

func (h libraryHandler) Handle(_ context.Context, r slog.Record) error {
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
	entry.Log(level, h.text)
	return nil
}

func (h libraryHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.entry = h.entry.WithField(a.Key, a.Value.String())
	}
	return h
}

func (h libraryHandler) WithGroup(string) slog.Handler { return h }
