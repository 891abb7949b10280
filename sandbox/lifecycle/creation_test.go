package lifecycle

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/podd-project/podd/sandbox/operation"
)

// creator is a Plan that notes what is done.
type creator struct {
	Plan
	mu    sync.Mutex
	calls []string
	work  Work
}

func (c *creator) called(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, name)
}

func newCreator(t *testing.T, build func(context.Context) error) *creator {
	log, _ := test.NewNullLogger()
	tracker := operation.Tracker{Slow: time.Hour, Log: log}
	c := &creator{}
	c.Plan = Plan{
		What: "object", Log: logrus.NewEntry(log), Life: NewLifetime(t.Context()), Timeout: time.Minute,
		Unclaimed: time.Hour, Work: &c.work, Daemon: t.Context(),
		Operation: func(ctx context.Context, do func(context.Context) error) error {
			ctx, active := tracker.Begin(ctx, operation.Operation{})
			err := do(ctx)
			active.End(err)
			return err
		},
		Build: func(ctx context.Context) error {
			c.called("build")
			return build(ctx)
		},
		Discard: func(_ context.Context, cause error) error {
			c.called("discard")
			return cause
		},
		Created: func() { c.called("created") },
		Remove: func(context.Context) error {
			c.called("remove")
			return nil
		},
	}
	return c
}

func (c *creator) expect(t *testing.T, calls string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := strings.Join(c.calls, " "); got != calls {
		t.Errorf("calls = %s, want %s", got, calls)
	}
}

// untilTheEnd is a build that takes as long as it may.
func untilTheEnd(ctx context.Context) error {
	<-ctx.Done()
	return errors.New("interrupted")
}

func TestCreationIsClaimedByItsWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ready := make(chan struct{})
		o, plan := NewCreation(), newCreator(t, func(context.Context) error { <-ready; return nil })
		go o.Run(t.Context(), plan.Plan)
		waiters := make(chan error, 2)
		for range 2 {
			go func() { waiters <- o.Await(t.Context(), "object") }()
		}
		synctest.Wait()
		if o.Claimed() || o.Abandoned() {
			t.Error("claimed or abandoned during the creation, want neither")
		}
		close(ready)
		if first, second := <-waiters, <-waiters; first != nil || second != nil || !o.Claimed() {
			t.Errorf("Await = %v and %v, claimed = %v, want nil and true", first, second, o.Claimed())
		}
		time.Sleep(2 * plan.Unclaimed)
		plan.work.Wait()
		plan.expect(t, "build created")
	})
}

func TestCreationThatNobodyClaimsIsRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, plan := NewCreation(), newCreator(t, func(context.Context) error { return nil })
		o.Run(ended(t), plan.Plan) // its caller has given up
		time.Sleep(plan.Unclaimed - time.Second)
		synctest.Wait()
		plan.expect(t, "build created")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		plan.expect(t, "build created remove")
		if !o.Claimed() {
			t.Error("claimed = false, want later callers to see an object that is being removed")
		}
	})
}

func TestCreationFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		build func(context.Context) error
		end   func(Lifetime)
		want  error
	}{
		{"by its error", func(context.Context) error { return errEnd }, func(Lifetime) {}, errEnd},
		{"by its timeout", untilTheEnd, func(Lifetime) {}, context.DeadlineExceeded},
		{"with its object", untilTheEnd, func(l Lifetime) { l.End(errEnd) }, errEnd},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o, plan := NewCreation(), newCreator(t, c.build)
				go o.Run(t.Context(), plan.Plan)
				synctest.Wait()
				c.end(plan.Life)
				if err := o.Await(t.Context(), "object"); !errors.Is(err, c.want) || o.Claimed() {
					t.Errorf("Await = %v, claimed = %v, want %v and false", err, o.Claimed(), c.want)
				}
				if err := o.Settled(t.Context()); !errors.Is(err, c.want) {
					t.Errorf("Settled = %v, want %v", err, c.want)
				}
				plan.expect(t, "build discard")
			})
		})
	}
}

func TestCallerThatGivesUpReadsTheStage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := NewCreation()
		plan := newCreator(t, func(ctx context.Context) error {
			operation.SetStage(ctx, "network")
			return untilTheEnd(ctx)
		})
		err := o.Await(ended(t), "object")
		if !errors.Is(err, errEnd) || !strings.Contains(err.Error(), "object is still being created (stage: start)") {
			t.Errorf("Await = %v, want the stage start", err)
		}
		go o.Run(t.Context(), plan.Plan)
		synctest.Wait()
		if err := o.Await(ended(t), "object"); !strings.Contains(err.Error(), "(stage: network)") {
			t.Errorf("Await = %v, want the stage network", err)
		}
		if err := o.Settled(ended(t)); !errors.Is(err, errEnd) {
			t.Errorf("Settled = %v, want %v", err, errEnd)
		}
		<-o.Done() // by the timeout
	})
}

func TestRegister(t *testing.T) {
	t.Parallel()
	differs := errors.New("differs")
	removed := 0
	for _, c := range []struct {
		name            string
		claimed         bool
		same, removal   error
		wantNew         bool
		wantErr         error
		removals        int
		removalKeepsOld bool
	}{
		{name: "the same", claimed: true},
		{name: "the same, unclaimed"},
		{name: "another", claimed: true, same: differs, wantErr: differs},
		{name: "another, unclaimed", same: differs, wantNew: true, removals: 1},
		{name: "another, gone by then", same: differs, removal: errdefs.ErrNotFound, wantNew: true, removals: 1},
		{name: "another, cannot be removed", same: differs, removal: errEnd, wantErr: errEnd, removals: 1,
			removalKeepsOld: true},
	} {
		old, o := newObject("1", "name", 1), newObject("2", "name", 2)
		table := newObjects(old)
		if c.claimed {
			old.creation.Adopt()
		}
		removed = 0
		got, added, err := Register(table, o, func(*object) error { return c.same }, func(other *object) error {
			removed++
			if !c.removalKeepsOld {
				table.Remove(other)
			}
			return c.removal
		})
		want := old
		if c.wantNew {
			want = o
		}
		if got != want || added != c.wantNew || !errors.Is(err, c.wantErr) || removed != c.removals {
			t.Errorf("%s: Register = %s, %v, %v with %d removals, want %s, %v, %v with %d", c.name, got.id, added, err,
				removed, want.id, c.wantNew, c.wantErr, c.removals)
		}
	}
}
