package streaming

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/sirupsen/logrus"
)

// errClosing is the cause of a session's end when the server closes.
var errClosing = errors.New("streaming server is closing")

// Server issues URLs and serves them.
type Server struct {
	cfg      Config
	backend  Backend
	log      logrus.FieldLogger
	tickets  *tickets
	timing   timing
	listener net.Listener
	base     string // scheme://host:port
	http     *http.Server

	// ctx is the parent of all sessions; canceling it closes the server.
	ctx     context.Context
	cancel  context.CancelCauseFunc
	limits  Limits
	pending *pendingConns

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup

	open openSessions
}

// New listens on the address of the configuration, which must be valid. URLs can be issued at once; they are served
// once Serve runs. The caller must call Close.
func New(cfg Config, limits Limits, backend Backend, log logrus.FieldLogger) (*Server, error) {
	return newServer(cfg, realTime, limits, backend, log)
}

func newServer(
	cfg Config, t timing, limits Limits, backend Backend, log logrus.FieldLogger,
) (*Server, error) {
	s := &Server{
		cfg: cfg, backend: backend, log: log,
		timing: t, tickets: newTickets(t.token, maxTokens),
		limits: limits, pending: newPendingConns(limits.Pending),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.http = &http.Server{
		Handler: s.routes(),
		// These apply until a connection becomes a session.
		ReadHeaderTimeout: t.header, ReadTimeout: t.header, WriteTimeout: t.header, IdleTimeout: t.header,
		MaxHeaderBytes: 64 << 10,
		ConnState:      s.pending.track,
		BaseContext:    func(net.Listener) context.Context { return s.ctx },
		ErrorLog:       stdlog.New(logWriter{log}, "", 0),
	}
	if cfg.tls() {
		cert, err := loadCertificate(cfg.TLSCertFile, cfg.TLSKeyFile, log)
		if err != nil {
			return nil, err
		}
		version, _ := cfg.tlsVersion() // checked by Validate
		s.http.TLSConfig = &tls.Config{GetCertificate: cert.get, MinVersion: version}
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(cfg.Address, strconv.Itoa(cfg.Port)))
	if err != nil {
		return nil, fmt.Errorf("listen for streaming: %w", err)
	}
	s.listener, s.base = listener, baseURL(cfg, listener.Addr())
	return s, nil
}

// baseURL returns the prefix of all URLs. A client cannot connect to a wildcard address, so it is replaced by
// loopback: the kubelet is on this node.
func baseURL(cfg Config, bound net.Addr) string {
	at := bound.(*net.TCPAddr).AddrPort()
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	switch at.Addr() {
	case netip.IPv4Unspecified():
		at = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port())
	case netip.IPv6Unspecified():
		at = netip.AddrPortFrom(netip.IPv6Loopback(), at.Port())
	}
	if cfg.tls() {
		return "https://" + at.String()
	}
	return "http://" + at.String()
}

// Addr is the address the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve serves clients until ctx ends or Close is called, which ends all sessions; it returns nil then. It does not
// wait for the sessions, Close does.
func (s *Server) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.shutdown)
	defer stop()
	var err error
	if s.http.TLSConfig != nil {
		// HTTP/2 is offered too, for plain requests only: it has no upgrade.
		err = s.http.ServeTLS(s.listener, "", "")
	} else {
		err = s.http.Serve(s.listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve streaming: %w", err)
}

// Close ends the server and its sessions and waits until the backend's calls have returned or ctx ends.
func (s *Server) Close(ctx context.Context) error {
	s.shutdown()
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for streaming sessions: %w", context.Cause(ctx))
	}
}

// shutdown stops accepting connections and cancels all sessions.
func (s *Server) shutdown() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel(errClosing)
	s.tickets.clear()
	s.http.Close()
	s.listener.Close() // s.http knows the listener only once Serve runs
}

// acquireSession admits a session of the pod. It returns the error of Limits when there are too many, errClosing
// when the server is closing.
func (s *Server) acquireSession(podID string) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosing
	}
	if release, err = s.limits.Session(podID); err == nil {
		s.running.Add(1)
	}
	return release, err
}

func (s *Server) releaseSession(release func()) {
	release()
	s.running.Done()
}

// logWriter logs the messages of net/http (failed TLS handshakes, panics of handlers).
type logWriter struct{ log logrus.FieldLogger }

func (w logWriter) Write(p []byte) (int, error) {
	w.log.WithField("message", strings.TrimSpace(string(p))).Debug("message of the streaming HTTP server")
	return len(p), nil
}
