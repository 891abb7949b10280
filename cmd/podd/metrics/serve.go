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

// Path is the path of the metrics endpoint.
const Path = "/metrics"

// scrapeTimeout bounds reading a request and writing its response.
const scrapeTimeout = 10 * time.Second

// maxScrapes bounds concurrent scrapes. Further ones get HTTP status 503.
const maxScrapes = 4

// Serve serves scrapes on l until ctx ends, and closes l.
func (m *Metrics) Serve(ctx context.Context, l net.Listener, log logrus.FieldLogger) error {
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, m.handler(log))
	srv := &http.Server{
		Handler: mux, ReadTimeout: scrapeTimeout, WriteTimeout: scrapeTimeout, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10,
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

// handler answers scrapes. A scraper that disconnects early gets one line in the log: promhttp would report each metric
// family that it still tries to send.
func (m *Metrics) handler(log logrus.FieldLogger) http.Handler {
	metrics := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, ErrorHandling: promhttp.ContinueOnError, ErrorLog: logger{log},
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resp := &response{ResponseWriter: w}
		metrics.ServeHTTP(resp, r)
		if resp.err != nil {
			log.WithError(resp.err).Warn("failed to send metrics")
		}
	})
}

// response discards what follows after a failed write.
type response struct {
	http.ResponseWriter
	err error
}

func (r *response) Write(p []byte) (int, error) {
	if r.err == nil {
		_, r.err = r.ResponseWriter.Write(p)
	}
	return len(p), nil
}

// logger implements promhttp.Logger, which gets the errors of collecting metrics.
type logger struct{ logrus.FieldLogger }

func (l logger) Println(v ...any) {
	l.WithField("error", fmt.Sprint(v...)).Warn("failed to collect metrics")
}
