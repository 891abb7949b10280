package daemon

import (
	"context"
	"os"
	"time"

	"github.com/podd-project/podd/cmd/podd/history"
	"github.com/podd-project/podd/cmd/podd/metrics"
	"github.com/podd-project/podd/cmd/podd/tracing"
)

// flushSpansTimeout is how long a stopping daemon tries to send its last spans.
const flushSpansTimeout = 3 * time.Second

// newObservers makes those that are configured. podd runs without one that cannot be made.
func (d *daemon) newObservers() (o observers) {
	o.starts, o.history = newFailedStarts(), d.openHistory()
	if d.cfg.Metrics.Enabled() {
		o.metrics = metrics.New(d.version)
	}
	if !d.cfg.Tracing.Enabled(os.Getenv) {
		return o
	}
	var err error
	if o.tracer, err = tracing.New(d.cfg.Tracing, d.version, d.log); err != nil { // must not keep pods from starting
		d.log.WithError(err).Error("failed to set up tracing: no spans are sent")
		return o
	}
	d.onClose("tracing", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), flushSpansTimeout)
		defer cancel()
		return o.tracer.Shutdown(ctx)
	})
	return o
}

// openHistory returns nil if the history cannot be written: pods run without it.
func (d *daemon) openHistory() *history.History {
	h, err := history.Open(history.Dir(d.cfg.Root), d.log)
	if err != nil {
		d.log.WithError(err).Error("failed to open the history: operations are not recorded")
		return nil
	}
	d.onClose("history", h.Close)
	return h
}
