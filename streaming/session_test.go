package streaming

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatch: a session ends at its idle timeout when no byte moves, not while bytes move, and at the next check when
// the client has disconnected.
func TestWatch(t *testing.T) {
	for _, c := range []struct {
		name    string
		idle    time.Duration
		touches int // one each hour
		goneAt  time.Duration
		ends    time.Duration
		cause   error
	}{
		{"idle", 4 * time.Hour, 0, 0, 4 * time.Hour, errIdle},
		{"used", 4 * time.Hour, 10, 0, 14 * time.Hour, errIdle},
		{"gone", 4 * time.Hour, 0, time.Minute, time.Minute, errGone},
		{"gone, no idle timeout", 0, 0, 30 * time.Hour, 30 * time.Hour, errGone},
		{"short idle timeout", 100 * time.Millisecond, 0, 0, 100 * time.Millisecond, errIdle},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(context.Background(), c.idle, realTime)
				var gone atomic.Bool
				if c.goneAt > 0 {
					time.AfterFunc(c.goneAt, func() { gone.Store(true) })
				}
				go s.watch(gone.Load)
				start := time.Now()
				for range c.touches {
					time.Sleep(time.Hour)
					s.touch()
				}
				<-s.ctx.Done()
				if took := time.Since(start); took < c.ends || took > c.ends+2*realTime.check {
					t.Errorf("session ended after %v, want %v", took, c.ends)
				}
				if got := s.err(); !errors.Is(got, c.cause) {
					t.Errorf("err = %v, want %v", got, c.cause)
				}
			})
		})
	}
}

func TestConnLostAfterTheCallIsNoError(t *testing.T) {
	s := newSession(context.Background(), 0, realTime)
	s.finishing.Store(true)
	s.connLost(errGone)
	if err := s.ctx.Err(); err != nil {
		t.Errorf("after the outcome a disconnected client ended the session: %v, want no error", err)
	}
	s.close()
	if s.ctx.Err() == nil || s.err() != nil {
		t.Errorf("after close: ctx.Err = %v, err = %v, want an error and nil", s.ctx.Err(), s.err())
	}
}
