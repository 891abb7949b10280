package streaming

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
)

// timing holds the intervals of a session; tests use shorter ones.
type timing struct {
	// check is how often to check that the client is connected and not idle.
	check time.Duration
	// linger is how long a client that has received everything may take to disconnect, and how long a client whose
	// session the server ends may take to receive the reason.
	linger time.Duration
	// heartbeat is how often an empty frame (SPDY) or a pong (WebSocket) is sent. If the client has disconnected
	// while a command does not read its input, the FIN is queued behind unread data; the heartbeat makes the client's
	// machine answer with a RST, which is noticed.
	heartbeat time.Duration
	// halfClosed is how long a client of WebSocket channels may send nothing after the pod has closed a forwarded
	// connection: it cannot close its own side.
	halfClosed time.Duration
	// create is how long a client may take to open the streams it asked for, after the upgrade.
	create time.Duration
	// token is how long a URL is valid. It can be used once.
	token time.Duration
	// header is how long a connection may take for the TLS handshake, and then for a request.
	header time.Duration
}

var realTime = timing{
	check: 2 * time.Second, linger: 10 * time.Second, heartbeat: 10 * time.Second,
	halfClosed: 2 * time.Second, create: 15 * time.Second, token: time.Minute, header: 10 * time.Second,
}

// Causes of the context passed to the Backend, when the session ends before the call returns.
var (
	errGone error = gone{}
	errIdle       = errors.New("session was idle for too long")
)

// gone is a cancellation: users close their terminals.
type gone struct{}

func (gone) Error() string { return "client disconnected" }

// Cancelled is that of errdefs.IsCanceled.
func (gone) Cancelled() {}

// session is one client's session, from the redeemed token to the closed connection.
type session struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	// conn is nil until the upgrade has taken the connection from the HTTP server.
	conn   *conn
	timing timing
	idle   time.Duration
	born   time.Time
	// used is when a byte last moved, in nanoseconds since born.
	used atomic.Int64
	// finishing is set when the backend's call has returned: losing the client is then not an error.
	finishing atomic.Bool
	// tasks are the goroutines of this session; close waits for them.
	tasks sync.WaitGroup
}

func newSession(ctx context.Context, idle time.Duration, t timing) *session {
	s := &session{idle: idle, timing: t, born: time.Now()}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s
}

// adopt makes c the session's connection: the end of the session aborts it, and losing it ends the session. When the
// server ends the session, the client gets time to receive the reason: kubectl takes a closed connection without an
// outcome for exit code 0.
func (s *session) adopt(c *conn) {
	s.conn = c
	s.touch()
	context.AfterFunc(s.ctx, func() {
		if cause := context.Cause(s.ctx); errors.Is(cause, errIdle) || errors.Is(cause, errClosing) {
			time.AfterFunc(s.timing.linger, c.abort)
			return
		}
		c.abort()
	})
	s.tasks.Go(func() { s.watch(c.clientGone) })
}

// watch ends the session when the client has disconnected or is idle. A Read notices a disconnect too, but there is
// none while a command does not read its input.
func (s *session) watch(clientGone func() bool) {
	interval := s.timing.check
	if s.idle > 0 {
		interval = min(interval, max(s.idle/4, time.Millisecond))
	}
	runEvery(s.ctx, interval, func() {
		if clientGone() {
			s.cancel(errGone)
		}
		if s.idle > 0 && s.idleFor() >= s.idle {
			s.cancel(errIdle)
		}
	})
}

// runEvery calls f at intervals until ctx ends.
func runEvery(ctx context.Context, interval time.Duration, f func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}

// touch records that a byte moved.
func (s *session) touch() { s.used.Store(int64(time.Since(s.born))) }

// idleFor is the time since a byte moved.
func (s *session) idleFor() time.Duration { return time.Since(s.born) - time.Duration(s.used.Load()) }

// connLost ends the session with the given cause, unless the backend's call has returned.
func (s *session) connLost(err error) {
	if !s.finishing.Load() {
		s.cancel(err)
	}
}

// finish sends the last messages, ends the outgoing direction and reads until the client has closed its own. Closing
// at once with unread input would make the kernel reset the connection, and a reset discards output that the client
// has not read. A client that reads slowly (a pager) may do so until the idle timeout.
func (s *session) finish(sendLast func()) {
	s.finishing.Store(true)
	sendLast()
	s.conn.Close()
	s.tasks.Go(s.linger)
	s.conn.drain()
	s.cancel(nil)
}

// linger ends the session of a client that has received everything and does not disconnect.
func (s *session) linger() {
	received := false
	runEvery(s.ctx, s.timing.linger, func() {
		if received {
			s.cancel(nil)
		}
		received = s.conn.receivedAll()
	})
}

// close ends the session and waits for its goroutines.
func (s *session) close() {
	s.cancel(nil)
	if s.conn != nil {
		s.conn.abort()
	}
	s.tasks.Wait()
}

// err returns why the session ended before the backend's call returned; nil if it did not.
func (s *session) err() error {
	if cause := context.Cause(s.ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// callBackend makes one call of the backend. A panic fails this session, not the daemon.
func callBackend(log logrus.FieldLogger, call func() (int, error)) (code int, err error) {
	defer func() {
		if r := recover(); r != nil {
			log.WithFields(logrus.Fields{"panic": fmt.Sprint(r), "stack": string(debug.Stack())}).
				Error("streaming backend panicked")
			err = errors.New("podd panicked, see its log")
		}
	}()
	return call()
}
