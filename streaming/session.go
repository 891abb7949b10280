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

// timing is how often a session looks around; tests have less time.
type timing struct {
	// check is how often to ask whether the client is still there and its streams are in use.
	check time.Duration
	// linger is how long a client that has received everything may take to hang up, and how long one that is sent
	// away may take to receive that.
	linger time.Duration
	// heartbeat is how often something without a meaning is sent: an empty frame, or with WebSocket a pong. When a
	// client vanished behind input that a command does not take, it makes the client's machine answer with a reset;
	// without, the end of the connection would be the last byte of a queue that nobody reads.
	heartbeat time.Duration
}

var realTime = timing{check: 2 * time.Second, linger: 10 * time.Second, heartbeat: 10 * time.Second}

// Why a session ended before its work did: the causes of the context given to the Backend.
var (
	errGone = errors.New("client is gone")
	errIdle = errors.New("session was idle for too long")
)

// session is one client's stay, from the redeemed token to the closed connection.
type session struct {
	ctx context.Context
	end context.CancelCauseFunc
	// conn is nil until the upgrade has taken the connection from the HTTP server.
	conn   *conn
	timing timing
	idle   time.Duration
	born   time.Time
	// used is when bytes last moved, in nanoseconds since born.
	used atomic.Int64
	// finishing: the work is done, so losing the client means nothing any more.
	finishing atomic.Bool
	// tasks are the goroutines of this session; close waits for them.
	tasks sync.WaitGroup
}

func newSession(ctx context.Context, idle time.Duration, t timing) *session {
	s := &session{idle: idle, timing: t, born: time.Now()}
	s.ctx, s.end = context.WithCancelCause(ctx)
	return s
}

// adopt makes c the session's connection: whatever ends the session cuts it, and losing it ends the session. A
// client that is still there gets a moment to be told why, or kubectl would take the silence for success.
func (s *session) adopt(c *conn) {
	s.conn = c
	s.touch()
	context.AfterFunc(s.ctx, func() {
		if cause := context.Cause(s.ctx); errors.Is(cause, errIdle) || errors.Is(cause, errClosing) {
			time.AfterFunc(s.timing.linger, c.cut)
			return
		}
		c.cut()
	})
	s.tasks.Go(func() { s.watch(c.gone) })
}

// watch ends the session when the client is gone or idle. Reading finds out that a client is gone too, but nobody
// reads while a command does not take its input.
func (s *session) watch(gone func() bool) {
	interval := s.timing.check
	if s.idle > 0 {
		interval = min(interval, max(s.idle/4, time.Millisecond))
	}
	every(s.ctx, interval, func() {
		if gone() {
			s.end(errGone)
		}
		if s.idle > 0 && time.Since(s.born)-time.Duration(s.used.Load()) >= s.idle {
			s.end(errIdle)
		}
	})
}

// every calls f at intervals until ctx ends.
func every(ctx context.Context, interval time.Duration, f func()) {
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

// touch notes that a byte moved.
func (s *session) touch() { s.used.Store(int64(time.Since(s.born))) }

// lost ends the session for the given reason unless its work is done.
func (s *session) lost(err error) {
	if !s.finishing.Load() {
		s.end(err)
	}
}

// finish says the last things, ends the outgoing direction and reads until the client has closed its own: closing
// at once with unread input would make the kernel reset the connection, and a reset overtakes what was said. A
// client that reads slowly (a pager) has until the session counts as idle.
func (s *session) finish(say func()) {
	s.finishing.Store(true)
	say()
	s.conn.Close()
	s.tasks.Go(s.linger)
	s.conn.drain()
	s.end(nil)
}

// linger ends the session of a client that has received everything and does not hang up.
func (s *session) linger() {
	told := false
	every(s.ctx, s.timing.linger, func() {
		if told {
			s.end(nil)
		}
		told = s.conn.received()
	})
}

// close ends the session, whatever is left of it.
func (s *session) close() {
	s.end(nil)
	if s.conn != nil {
		s.conn.cut()
	}
	s.tasks.Wait()
}

// err is why the session ended before its work; nil when it did not.
func (s *session) err() error {
	if cause := context.Cause(s.ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// guard runs one call of the backend. A panic is this session's trouble, not the daemon's.
func guard[T any](call func() (T, error)) (result T, err error) {
	defer func() {
		if r := recover(); r != nil {
			logrus.WithFields(logrus.Fields{"panic": fmt.Sprint(r), "stack": string(debug.Stack())}).Error("streaming backend panicked")
			err = errors.New("internal error")
		}
	}()
	return call()
}
