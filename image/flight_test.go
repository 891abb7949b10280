package image

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	logrustest "github.com/sirupsen/logrus/hooks/test"
	"go.podman.io/image/v5/types"

	"github.com/podd-project/podd/image/registry"
)

// blocked is a pull that returns only when its context ends, and records the cause.
type blocked struct{ started, ended atomic.Int32 }

func (b *blocked) pull(ctx context.Context, _ PullRequest, _ *progress) (*Image, error) {
	b.started.Add(1)
	<-ctx.Done()
	b.ended.Add(1)
	return nil, context.Cause(ctx)
}

const testGrace = time.Minute

func TestFlightGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		fs, b := newFlights(ctx, testGrace), &blocked{}
		f := fs.join(PullRequest{Ref: "x"}, b.pull)
		time.Sleep(10 * testGrace) // a caller waits: there is no time limit
		fs.leave(f)
		time.Sleep(testGrace - time.Second)
		if again := fs.join(PullRequest{Ref: "x"}, b.pull); again != f {
			t.Error("within the grace time a new pull began")
		}
		time.Sleep(10 * testGrace)
		if b.ended.Load() != 0 {
			t.Error("the pull ended under its second caller")
		}
		fs.leave(f)
		time.Sleep(testGrace + time.Second)
		synctest.Wait()
		if b.started.Load() != 1 || b.ended.Load() != 1 || !errors.Is(f.err, registry.ErrAbandoned) {
			t.Errorf("started %d, ended %d with %v, want 1, 1 and %v", b.started.Load(), b.ended.Load(), f.err,
				registry.ErrAbandoned)
		}
		if n := len(fs.list()); n != 0 {
			t.Errorf("%d pulls in progress, want 0", n)
		}
	})
}

func TestFlightIsNotJoinedWhileDying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		fs := newFlights(ctx, testGrace)
		slow := func(ctx context.Context, _ PullRequest, _ *progress) (*Image, error) {
			<-ctx.Done()
			time.Sleep(time.Hour) // winding down
			return nil, context.Cause(ctx)
		}
		f := fs.join(PullRequest{Ref: "x"}, slow)
		fs.leave(f)
		time.Sleep(testGrace + time.Second)
		again := fs.join(PullRequest{Ref: "x"}, slow)
		if again == f {
			t.Error("joined a pull that was given up")
		}
		time.Sleep(2 * time.Hour) // the first one ends, and must not take the second one's place away
		if n := len(fs.list()); n != 1 {
			t.Errorf("%d pulls under way, want 1", n)
		}
		fs.leave(again)
		cancel(registry.ErrClosing)
		fs.wait()
		if !errors.Is(again.err, registry.ErrClosing) {
			t.Errorf("error = %v, want registry.ErrClosing", again.err)
		}
	})
}

func TestFlightsAreKeptApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		fs, b := newFlights(ctx, testGrace), &blocked{}
		seen := map[*flight]bool{}
		for _, r := range []PullRequest{
			{Ref: "x"}, {Ref: "y"}, {Ref: "x", Auth: &Auth{Username: "u"}},
			{Ref: "x", Auth: &Auth{Username: "u", Password: "p"}},
			{Ref: "x", Auth: &Auth{}}, {Ref: "x", Namespace: "elsewhere"}, {Ref: "x", Auth: &Auth{Username: "u"}},
		} {
			seen[fs.join(r, b.pull)] = true
		}
		if len(seen) != 4 {
			t.Errorf("%d pulls, want 4", len(seen))
		}
		cancel(nil)
		fs.wait()
	})
}

func TestStallMeter(t *testing.T) {
	const enough = 100
	for name, c := range map[string]struct {
		// received after each look; -1 means that the pull does not wait
		received []int
		want     int // the look at which it stalls, -1 for never
	}{
		"nothing comes":    {make([]int, 30), steps},
		"steady":           {series(30, func(i int) int { return i * 20 }), -1},
		"a trickle":        {series(30, func(i int) int { return i }), steps},
		"stops later":      {series(40, func(i int) int { return min(i, 15) * 20 }), 15 + steps - 4},
		"unpacks for long": {series(60, func(i int) int { return -1 }), -1},
		"waits after a pause": {series(30, func(i int) int {
			if i < 15 {
				return -1
			}
			return 5
		}), 15 + steps},
	} {
		var m stallMeter
		got := -1
		for i, n := range c.received {
			if m.step(uint64(max(n, 0)), n >= 0, enough) {
				got = i
				break
			}
		}
		if got != c.want {
			t.Errorf("%s: stalls at look %d, want %d", name, got, c.want)
		}
	}
}

func series(n int, f func(int) int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = f(i)
	}
	return out
}

func TestStallWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			watch stallWatch
			want  bool
		}{
			"on":  {stallWatch{window: time.Minute, rate: 1}, true},
			"off": {stallWatch{}, false},
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			begin := time.Now()
			go c.watch.run(ctx, newProgress("x"), cancel)
			select {
			case <-ctx.Done():
			case <-time.After(time.Hour):
			}
			if stalled := errors.Is(context.Cause(ctx), registry.ErrStalled); stalled != c.want {
				t.Errorf("%s: stalled %v, want %v", name, stalled, c.want)
			}
			if d := time.Since(begin); c.want && (d < time.Minute || d > 70*time.Second) {
				t.Errorf("%s: after %v, want one window", name, d)
			}
			cancel(nil)
		}
	})
}

// TestLongPullsAreLogged every 30 s while they run.
func TestLongPullsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, hook := logrustest.NewNullLogger()
		p := newProgress("x")
		p.Note(report(types.ProgressEventRead, "a", 100, 40, 40))
		stop := reportProgress(t.Context(), logger.WithField("image", "x"), p)
		time.Sleep(2*logInterval + time.Second)
		stop()
		time.Sleep(10 * logInterval)
		lines := hook.AllEntries()
		if len(lines) != 2 {
			t.Fatalf("%d lines, want 2", len(lines))
		}
		if d := lines[1].Data; d["bytes"] != uint64(40) || d["total"] != uint64(100) || d["stage"] != StageResolving {
			t.Errorf("fields = %v, want 40 of 100 bytes, %s", d, StageResolving)
		}
	})
}

// TestFailedPulls: a name is listed from a failed pull to the next one that succeeds, and the list is bounded.
func TestFailedPulls(t *testing.T) {
	fs := newFlights(t.Context(), time.Minute)
	pull := func(ref string, err error) {
		f := fs.join(PullRequest{Ref: ref}, func(context.Context, PullRequest, *progress) (*Image, error) { return nil, err })
		<-f.done
		fs.leave(f)
	}
	failed := errors.New("no such image")
	for i := range 2 * maxFailures {
		pull(fmt.Sprint("image", i), failed)
	}
	all := fs.failed()
	if newest := fmt.Sprint("image", 2*maxFailures-1); len(all) != maxFailures || all[0].Ref != newest {
		t.Fatalf("%d failures, the newest %+v, want %d and %s", len(all), all[0], maxFailures, newest)
	}
	pull(all[0].Ref, nil)
	if left := fs.failed(); len(left) != maxFailures-1 || left[0].Ref == all[0].Ref {
		t.Errorf("after a pull that succeeded: %d failures, the newest %s, want one less", len(left), left[0].Ref)
	}
}
