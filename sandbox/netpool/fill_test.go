package netpool

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
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

// TestRunDirectoryInUse: an attachment is detached only when nothing of it is left.
func TestRunDirectoryInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pool(1)
		stop := n.run(t, p)
		synctest.Wait()
		other := filepath.Join(p.layout.PodRun(p.IDs()[0]), "other")
		if err := os.WriteFile(other, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		p.Reconfigure(Settings{})
		synctest.Wait()
		if s := p.Status(); len(p.IDs()) != 1 || !strings.Contains(s.Problem, "not empty") {
			t.Errorf("IDs = %v, %+v, want the one whose directory cannot be removed, and the reason", p.IDs(), s)
		}
		if err := os.Remove(other); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookInterval)
		synctest.Wait()
		if ids := p.IDs(); len(ids) != 0 {
			t.Errorf("IDs = %v, want none", ids)
		}
		n.clean(t)
		stop()
	})
}

// TestDropped: what turns out to be changed when a pod asks for it is detached at once, not when the next one is made.
func TestDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pool(1)
		var changed atomic.Bool
		p.network = &watched{Fake: n.network, failState: func() error {
			if !changed.Load() {
				return nil
			}
			time.Sleep(time.Millisecond) // the pool has seen that one is missing, and waits
			return errors.New("changed")
		}}
		n.run(t, p)
		synctest.Wait()
		changed.Store(true)
		if a := p.Take(pod(), ""); a != nil {
			t.Errorf("Take = %v, want none", a)
		}
		synctest.Wait()
		n.clean(t)
		changed.Store(false)
	})
}

// TestWakes: new settings are seen at once, also if they come while the pool finds out that it cannot make any.
func TestWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pool(1)
		var once sync.Once
		p.network = &watched{Fake: n.network, failGeneric: func() (err error) {
			once.Do(func() {
				p.Reconfigure(Settings{Size: 2})
				err = errors.New("of the former configuration")
			})
			return err
		}}
		n.run(t, p)
		wantReady(t, p, 2)
	})
}

// TestStop: the end of the daemon interrupts what is being detached and begins anew, all at once, so that many are
// detached in the time that the end has. It is no problem of the network.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.network.Before = func(ctx context.Context, verb, _ string) error {
			if verb != "teardown" {
				return nil
			}
			select {
			case <-time.After(closeTimeout - time.Second):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		p := n.pool(5)
		log, logged := logtest.NewNullLogger()
		log.SetLevel(logrus.WarnLevel)
		p.log = log
		stop := n.run(t, p)
		synctest.Wait()
		p.Reconfigure(Settings{})
		synctest.Wait() // they are being detached
		stop()
		n.clean(t)
		if got := logged.AllEntries(); len(got) != 0 || p.Status().Problem != "" {
			t.Errorf("logged %v, %+v, want no problem", got, p.Status())
		}
	})
}

// TestStopWhileGivingWay: the end waits for what a pod has begun to detach, and does not detach it a second time.
func TestStopWhileGivingWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		var teardowns atomic.Int32
		n.network.Before = func(_ context.Context, verb, _ string) error {
			if verb == "teardown" {
				teardowns.Add(1)
				time.Sleep(closeTimeout / 2)
			}
			return nil
		}
		p := n.pool(2)
		stop := n.run(t, p)
		synctest.Wait()
		go p.GiveWay(t.Context(), errFull, 0)
		synctest.Wait()
		stop()
		n.clean(t)
		if got := teardowns.Load(); got != 2 {
			t.Errorf("%d teardowns of 2 attachments, want 2", got)
		}
	})
}
