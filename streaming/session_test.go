package streaming

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
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

// TestOpenSessions: sessions are listed oldest first, with how long they are idle, until they are removed.
func TestOpenSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var srv Server
		first, second := newSession(context.Background(), 0, realTime), newSession(context.Background(), 0, realTime)
		later := SessionInfo{Kind: "attach", Container: "b", Started: time.Now().Add(time.Second)}
		removeSecond := srv.open.add(second, later)
		removeFirst := srv.open.add(first, SessionInfo{Kind: "exec", Container: "a", Started: time.Now()})
		time.Sleep(time.Minute)
		second.touch()
		time.Sleep(time.Second)
		got := srv.Sessions()
		if len(got) != 2 || got[0].Container != "a" || got[0].IdleSeconds != 61 || got[1].IdleSeconds != 1 {
			t.Errorf("Sessions() = %+v, want a, idle for 61 s, and b, idle for 1 s", got)
		}
		removeFirst()
		removeSecond()
		if got := srv.Sessions(); len(got) != 0 {
			t.Errorf("Sessions() = %+v, want none", got)
		}
	})
}

// TestEnded: at the end of each session the backend gets the id of the call that has asked for it.
func TestEnded(t *testing.T) {
	seen := make(chan SessionInfo, 3)
	b := backend{
		exec: func(_ context.Context, _ string, _ []string, s Streams) (int, error) {
			if s.Request != "1" {
				t.Errorf("request of the command = %q, want 1", s.Request)
			}
			return 7, nil
		},
		attach: func(context.Context, string, Streams) error { return nil },
		ended: func(info SessionInfo, err error) {
			if err != nil && info.Kind != "portforward" {
				t.Errorf("%s: %v", info.Kind, err)
			}
			seen <- info
		},
	}
	r := start(t, b)
	dialWebSocket(t, r.url(r.Exec("1", &cri.ExecRequest{ContainerId: "p1/c", Stdout: true})), "v5.channel.k8s.io")
	exec := recv(t, "the end of exec", seen)
	dialWebSocket(t, r.url(r.Attach("2", &cri.AttachRequest{ContainerId: "p1/c", Stdout: true})), "v5.channel.k8s.io")
	attach := recv(t, "the end of attach", seen)
	dialWebSocket(t, r.url(r.PortForward("3", &cri.PortForwardRequest{PodSandboxId: "p1", Port: []int32{80}})),
		"v4.channel.k8s.io").Close()
	forward := recv(t, "the end of port-forward", seen)
	for i, got := range []SessionInfo{exec, attach, forward} {
		want := []string{"exec 1 p1 p1/c", "attach 2 p1 p1/c", "portforward 3 p1 "}[i]
		if text := fmt.Sprint(got.Kind, " ", got.Request, " ", got.Pod, " ", got.Container); text != want {
			t.Errorf("ended %q, want %q", text, want)
		}
	}
}
