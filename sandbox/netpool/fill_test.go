package netpool

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
)

// TestGiveWayWhileMaking: the address that is just being taken goes to the pod, and that its making was ended is no
// failure: the status has the pool's reason, the log nothing, and the pause is that after giving way.
func TestGiveWayWhileMaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		var made atomic.Int32
		n.network.After = func(ctx context.Context, verb, _ string) error {
			if verb != "setup" || made.Add(1) > 1 {
				return nil
			}
			<-ctx.Done() // a later plugin of the list hangs
			return context.Cause(ctx)
		}
		p := n.pool(1)
		var logged *logtest.Hook
		p.log, logged = logtest.NewNullLogger()
		stop := n.run(t, p)
		synctest.Wait()
		if !p.GiveWay(t.Context(), errFull, p.Freed()) {
			t.Error("GiveWay = false, want true: what was being made held an address")
		}
		n.clean(t)
		time.Sleep(giveWayPause - time.Millisecond)
		wantReady(t, p, 0)
		if s := p.Status(); s.Problem != errGiveWay.Error() {
			t.Errorf("Status = %+v, want the problem %q", s, errGiveWay)
		}
		if got := logged.AllEntries(); len(got) != 0 {
			t.Errorf("logged %v, want nothing", got[0].Message)
		}
		time.Sleep(time.Millisecond)
		wantReady(t, p, 1)
		stop()
		n.clean(t)
	})
}

// TestBackoffEnds: a success ends the problem, though the pool is not full, and the next pause is the shortest again.
func TestBackoffEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		var failing atomic.Bool
		failing.Store(true)
		var failures atomic.Int32
		n.network.After = func(_ context.Context, verb, _ string) error {
			if verb == "setup" && failing.Load() {
				failures.Add(1)
				return errors.New("injected")
			}
			n.busy.Store(verb == "setup") // after one
			return nil
		}
		p := n.pool(2)
		n.run(t, p)
		time.Sleep(16 * minBackoff) // it has failed after 0, 1, 3, 7, 15 s
		synctest.Wait()
		failing.Store(false)
		time.Sleep(15 * minBackoff)
		wantReady(t, p, 1)
		if s := p.Status(); s.Problem != "" {
			t.Errorf("Status = %+v, want no problem", s)
		}
		failing.Store(true)
		failures.Store(0)
		n.busy.Store(false)
		time.Sleep(2 * minBackoff)
		synctest.Wait()
		if got := failures.Load(); got != 2 {
			t.Errorf("%d attempts in %v after a success, want 2", got, 2*minBackoff)
		}
	})
}

// TestClaims: a namespace in a directory that podd shares with others is claimed, and no claim is left of it.
func TestClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pool(1)
		stop := n.run(t, p)
		synctest.Wait()
		a := mustTake(t, p)
		if to, err := os.Readlink(p.layout.ClaimLink(a.ID)); err != nil || to != a.Netns {
			t.Errorf("claim = %q, %v, want a link to %s", to, err, a.Netns)
		}
		p.Return(a)
		stop()
		n.clean(t)
	})
}
