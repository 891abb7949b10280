// Package ui serves the page of `podd ui`: the activity of the node's daemon, in a browser. README.md describes the
// page.
//
// It owns the page, who may read it, and the few resources of the admin API that the page reads. It runs in the process
// of the command, not in the daemon, keeps nothing and changes nothing. Only the command calls it.
package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/net/netutil"
)

// API reads the admin API of the daemon; see admin.Client.
type API interface {
	// Open makes a request for a path without the version, "/status?pod=x", and returns the body of the answer. A
	// failure is an error of the errdefs kind that the daemon's had.
	Open(ctx context.Context, method, path string, body io.Reader) (io.ReadCloser, error)
}

const (
	// maxConnections bounds open connections; more wait. A browser opens six.
	maxConnections = 64
	// maxHeader and maxLogin bound a request's header and the body of a login, in bytes.
	maxHeader = 16 << 10
	maxLogin  = 1 << 10
	// headerTimeout bounds how long a request may take to arrive; who connects to a loopback port may be any local user.
	headerTimeout = 5 * time.Second
	// answerTimeout bounds a whole request. idleTimeout is much longer than the page's interval, so that no connection is
	// closed at the moment in which the browser uses it again.
	answerTimeout = 30 * time.Second
	idleTimeout   = time.Minute
)

// Server serves the page.
type Server struct {
	api     API
	session *session
}

// New returns a server of the page of the daemon behind api, and the token with which one browser can open it, once.
func New(api API) (s *Server, token string) {
	session, token := newSession()
	return &Server{api: api, session: session}, token
}

// CheckAddress returns an error unless address is host:port with an address of the loopback interface: the page is not
// encrypted, and shows the names of everything on the node.
func CheckAddress(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		return fmt.Errorf("%q is not an address of the loopback interface like 127.0.0.1: to open the page from another "+
			"machine, forward a port with ssh -L", host)
	}
	return nil
}

// Serve serves the page on l until ctx ends, and closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler: s.routes(), ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: answerTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    stdlog.New(io.Discard, "", 0), // clients that disconnect do not concern the administrator
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(netutil.LimitListener(l, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the page: %w", err)
	}
	return nil
}
