package streaming

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
)

// errClosing is the cause of sessions that end because the server does.
var errClosing = errors.New("streaming server is closing")

// Server hands out URLs and serves them.
type Server struct {
	cfg      Config
	backend  Backend
	tickets  *tickets
	timing   timing
	listener net.Listener
	base     string // scheme://host:port
	http     *http.Server

	// ctx is the parent of all sessions; its end closes the server.
	ctx     context.Context
	end     context.CancelCauseFunc
	pending atomic.Int64

	mu       sync.Mutex
	sessions int
	closed   bool
	running  sync.WaitGroup
}

// New listens on the configured address, so that URLs can be given out at once; they are answered once Serve runs.
// The listener is the caller's to release, by Close.
func New(cfg Config, backend Backend) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("streaming server: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	s := &Server{cfg: cfg, backend: backend, timing: realTime, tickets: newTickets(cfg.TokenTTL, cfg.MaxTokens)}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.http = &http.Server{
		Handler: s.routes(),
		// For plain HTTP and until a connection becomes a session.
		ReadHeaderTimeout: cfg.HeaderTimeout, ReadTimeout: cfg.HeaderTimeout, WriteTimeout: cfg.HeaderTimeout,
		IdleTimeout:    cfg.HeaderTimeout,
		MaxHeaderBytes: 64 << 10,
		ConnState:      s.count,
		BaseContext:    func(net.Listener) context.Context { return s.ctx },
		ErrorLog:       log.New(logWriter{}, "", 0),
	}
	if cfg.tls() {
		cert, err := loadCertificate(cfg.TLSCertFile, cfg.TLSKeyFile)
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

// baseURL is what URLs begin with. A wildcard address is no address to connect to: the kubelet, on this node, is
// given loopback.
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

// Serve answers clients until ctx ends or Close is called, both of which end every session; it returns nil then.
// Only Close waits for the sessions.
func (s *Server) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.shut)
	defer stop()
	var err error
	if s.http.TLSConfig != nil {
		// HTTP/2 is offered to clients that make plain requests; no upgrade exists in it.
		err = s.http.ServeTLS(s.listener, "", "")
	} else {
		err = s.http.Serve(s.listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve streaming: %w", err)
}

// Close ends the server and its sessions and waits for the backend's calls to return, or for ctx.
func (s *Server) Close(ctx context.Context) error {
	s.shut()
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for streaming sessions: %w", context.Cause(ctx))
	}
}

// shut stops accepting and tells all sessions to end.
func (s *Server) shut() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end(errClosing)
	s.tickets.clear()
	s.http.Close()
	s.listener.Close() // http knows it only once Serve has run
}

// enter counts a session in; false when there are too many or the server closes.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.sessions >= s.cfg.MaxSessions {
		return false
	}
	s.sessions++
	s.running.Add(1)
	return true
}

func (s *Server) leave() {
	s.mu.Lock()
	s.sessions--
	s.mu.Unlock()
	s.running.Done()
}

// count is http.Server.ConnState: it bounds the connections that are not sessions, which are what a client without
// a token can have.
func (s *Server) count(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if s.pending.Add(1) > int64(s.cfg.MaxPending) {
			c.Close()
		}
	case http.StateHijacked, http.StateClosed:
		s.pending.Add(-1)
	}
}

// logWriter takes net/http's own messages (failed TLS handshakes, panics of handlers).
type logWriter struct{}

func (logWriter) Write(p []byte) (int, error) {
	logrus.WithField("message", strings.TrimSpace(string(p))).Debug("streaming http server")
	return len(p), nil
}
