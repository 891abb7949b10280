package budget

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
)

func small() (*Table, *Pool) {
	t := &Table{}
	return t, t.pool(Usage{Name: "things", Unit: Bytes, Limit: 10, PerOwner: 6, Owner: "pod"})
}

// TestTry: an owner cannot use more than its share, all owners not more than the pool, and everything comes back.
func TestTry(t *testing.T) {
	table, p := small()
	a, err := p.Try("a", 6)
	if err != nil {
		t.Fatal(err)
	}
	var refused *RefusedError
	if _, err := p.Try("a", 1); !errors.As(err, &refused) || refused.Owner != "pod a" || refused.Limit != 6 {
		t.Errorf("beyond the share: %v, want refused for pod a, limit 6", err)
	}
	b, err := p.Try("b", 4)
	if err != nil {
		t.Errorf("another owner: %v, want no error", err)
	}
	if err := b.Grow(1); !errdefs.IsResourceExhausted(err) {
		t.Errorf("beyond the pool: %v, want resource exhausted", err)
	}
	want := []Usage{{
		Name: "things", Unit: Bytes, Limit: 10, PerOwner: 6, Owner: "pod", InUse: 10, Peak: 10, Refused: 2,
	}}
	if d := cmp.Diff(want, table.Usages()); d != "" {
		t.Errorf("Usages, -want +got:\n%s", d)
	}
	a.Release()
	a.Release() // changes nothing
	if err := b.Grow(2); err != nil {
		t.Errorf("after a release: %v, want no error", err)
	}
	b.Release()
	if u := p.Usage(); u.InUse != 0 || len(p.owners) != 0 {
		t.Errorf("after all releases: %d in use, %d owners, want none", u.InUse, len(p.owners))
	}
}

// TestRefusedOwnerLeavesNothing: a share is given back when the pool is full.
func TestRefusedOwnerLeavesNothing(t *testing.T) {
	_, p := small()
	a, _ := p.Try("a", 5)
	b, _ := p.Try("b", 5)
	for range 10 {
		if _, err := p.Try("c", 6); err == nil {
			t.Fatal("full pool: no error, want one")
		}
	}
	a.Release()
	b.Release()
	if g, err := p.Try("c", 6); err != nil {
		t.Errorf("empty pool: %v, want no error", err)
	} else {
		g.Release()
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p := small()
		a, _ := p.Try("a", 6)
		go func() {
			time.Sleep(time.Second)
			a.Release()
		}()
		began := time.Now()
		again, err := p.Wait(t.Context(), "a", 6)
		if err != nil || time.Since(began) != time.Second {
			t.Errorf("Wait: %v after %v, want no error after 1s", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for owner, n := range map[string]int64{"a": 1, "b": 5} {
			_, err = p.Wait(ctx, owner, n)
			if !errdefs.IsResourceExhausted(err) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Wait of %s: %v, want resource exhausted and a deadline", owner, err)
			}
		}
		again.Release()
		if u := p.Usage(); u.InUse != 0 || len(p.owners) != 0 {
			t.Errorf("afterwards: %d in use, %d owners, want none", u.InUse, len(p.owners))
		}
	})
}

// TestGrowAfterRelease: what a late Grow acquires is given back.
func TestGrowAfterRelease(t *testing.T) {
	_, p := small()
	g := p.Open("a")
	g.Release()
	_ = g.Grow(1)
	if u := p.Usage(); u.InUse != 0 {
		t.Errorf("in use = %d, want 0", u.InUse)
	}
}

// TestConcurrentGrants: the limits hold for many goroutines, and nothing is lost.
func TestConcurrentGrants(t *testing.T) {
	_, p := small()
	var all sync.WaitGroup
	for i := range 50 {
		owner := []string{"a", "b", "c"}[i%3]
		all.Go(func() {
			for range 200 {
				if g, err := p.Try(owner, int64(1+i%4)); err == nil {
					_ = g.Grow(1)
					g.Release()
				}
			}
		})
	}
	all.Wait()
	if u := p.Usage(); u.InUse != 0 || u.Peak > 10 || u.Peak == 0 || len(p.owners) != 0 {
		t.Errorf("usage = %+v, %d owners; want 0 in use, highest from 1 to 10, no owners", u, len(p.owners))
	}
}

// TestReserved: an owner has a part for itself when others have used the shared one up, and gets it back.
func TestReserved(t *testing.T) {
	table := &Table{}
	r := table.reserved(3, Usage{Name: "things", Unit: Bytes, Limit: 10, PerOwner: 10, Owner: "pod"})
	all, err := r.Try("greedy", 10)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		small, err := r.Try("other", 3)
		if err != nil {
			t.Errorf("the part of another owner: %v, want no error", err)
		}
		if _, err := r.Try("other", 1); !errdefs.IsResourceExhausted(err) {
			t.Errorf("beyond it: %v, want resource exhausted", err)
		}
		small.Release()
	}
	all.Release()
	if used := table.Usages(); len(used) != 1 || used[0].InUse != 0 || used[0].Peak != 10 {
		t.Errorf("usages = %+v, want one, of which nothing is in use and 10 were", used)
	}
}

func TestNoPool(t *testing.T) {
	var p *Pool
	g, err := p.Try("a", 1<<60)
	if err != nil || g.Grow(1) != nil {
		t.Errorf("Try = %v, want no limit", err)
	}
	g.Release()
	if _, err := p.Wait(t.Context(), "a", 1); err != nil {
		t.Errorf("Wait = %v, want no limit", err)
	}
}
