package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/sirupsen/logrus"
)

// Path is where the metrics are.
const Path = "/metrics"

// A scrape is answered from memory; whoever takes longer than this to ask for or to take the answer is cut off.
const scrapeTimeout = 10 * time.Second

// maxScrapes bounds the answers that are being made; the others are told to come later.
const maxScrapes = 4

// Serve answers scrapes that come to l, which it closes, until ctx ends.
func (m *Metrics) Serve(ctx context.Context, l net.Listener, log logrus.FieldLogger) error {
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, ErrorHandling: promhttp.ContinueOnError, ErrorLog: logger{log},
	}))
	srv := &http.Server{
		Handler: mux, ReadTimeout: scrapeTimeout, WriteTimeout: scrapeTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

// logger is a log as promhttp wants it: it tells of metrics that could not be collected.
type logger struct{ logrus.FieldLogger }

func (l logger) Println(v ...any) {
	l.WithField("what", fmt.Sprint(v...)).Warn("metrics could not be collected")
}
