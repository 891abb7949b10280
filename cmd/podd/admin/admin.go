// Package admin serves podd's admin API: HTTP and JSON on a unix socket that only root can use. README.md describes the
// resources. Each has a file, with the types of its requests and answers; client.go is the client of podd's commands.
//
// It owns the protocol: routes, limits, errors, who may connect. The content of the answers comes from a Node. Only the
// daemon's wiring and the commands call it.
package admin

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/net/netutil"
)

const (
	// maxConnections bounds open connections; more wait.
	maxConnections = 32
	// maxRequest bounds the body of a request, in bytes.
	maxRequest = 64 << 10
	// timeout bounds a request, unless its resource says otherwise.
	timeout = 10 * time.Second
)

// SocketPath returns the path of the socket of the daemon with that run directory.
func SocketPath(run string) string { return filepath.Join(run, "admin.sock") }

// Serve serves the API on l until ctx ends, and closes l. Requests in progress are canceled then.
func Serve(ctx context.Context, l net.Listener, n Node, log logrus.FieldLogger) error {
	srv := &http.Server{
		Handler: routes(n, log), ReadHeaderTimeout: timeout, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    stdlog.New(logWriter{log}, "", 0),
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	err := srv.Serve(netutil.LimitListener(rootOnly{l, log}, maxConnections))
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the admin API: %w", err)
	}
	return nil
}

// routes returns the handler of all resources.
func routes(n Node, log logrus.FieldLogger) http.Handler {
	r := router{mux: http.NewServeMux(), log: log}
	r.status(n)
	r.lists(n)
	r.usage(n)
	r.disk(n)
	r.containerLog(n)
	r.images(n)
	r.history(n)
	r.reload(n)
	r.logLevel(n)
	r.check(n)
	r.pprof()
	return r.mux
}

// logWriter logs the messages of net/http: connections that break, panics of handlers.
type logWriter struct{ log logrus.FieldLogger }

func (w logWriter) Write(p []byte) (int, error) {
	w.log.WithField("message", string(p)).Warn("message of the admin server")
	return len(p), nil
}
