package budget

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// Pool is a budget that calls share. An owner, such as a pod, can use a part of it only, so that others always find
// something left. A nil Pool has no limit.
type Pool struct {
	// size has what does not change: names and limits.
	size Usage
	all  *semaphore.Weighted

	inUse, peak atomic.Int64
	refused     atomic.Uint64

	mu     sync.Mutex
	owners map[string]*share
}

// share is the part of one owner. It exists while a grant of the owner does.
type share struct {
	sem    *semaphore.Weighted
	grants int
}

// Grant is what one call, session or connection holds of a pool.
type Grant struct {
	pool  *Pool
	owner string
	share *share

	mu       sync.Mutex
	held     int64
	released bool
}

// Open returns a grant of the owner that holds nothing yet. Release must be called.
func (p *Pool) Open(owner string) *Grant {
	g := &Grant{pool: p, owner: owner}
	if p == nil || p.size.PerOwner == 0 {
		return g
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if g.share = p.owners[owner]; g.share == nil {
		g.share = &share{sem: semaphore.NewWeighted(p.size.PerOwner)}
		p.owners[owner] = g.share
	}
	g.share.grants++
	return g
}

// Try returns a grant that holds n, or a *RefusedError at once.
func (p *Pool) Try(owner string, n int64) (*Grant, error) {
	g := p.Open(owner)
	if err := g.Grow(n); err != nil {
		g.Release()
		return nil, err
	}
	return g, nil
}

// Admit is Try of one unit, for packages that do not know grants: release gives it back.
func (p *Pool) Admit(owner string) (release func(), err error) {
	g, err := p.Try(owner, 1)
	if err != nil {
		return nil, err
	}
	return g.Release, nil
}

// Wait returns a grant that holds n as soon as there is room, in the order of the calls. When ctx ends before, the
// error wraps its cause and a *RefusedError.
func (p *Pool) Wait(ctx context.Context, owner string, n int64) (*Grant, error) {
	g := p.Open(owner)
	if err := g.wait(ctx, n); err != nil {
		g.Release()
		return nil, err
	}
	return g, nil
}

// Grow makes the grant hold n more, or returns a *RefusedError and changes nothing.
func (g *Grant) Grow(n int64) error {
	if g.pool == nil {
		return nil
	}
	if g.share != nil && !g.share.sem.TryAcquire(n) {
		return g.refuse(n, g.owner, g.pool.size.PerOwner)
	}
	if !g.pool.all.TryAcquire(n) {
		g.leaveShare(n)
		return g.refuse(n, "", g.pool.size.Limit)
	}
	g.hold(n)
	return nil
}

func (g *Grant) wait(ctx context.Context, n int64) error {
	if g.pool == nil {
		return nil
	}
	if g.share != nil {
		if err := g.share.sem.Acquire(ctx, n); err != nil {
			return waited(ctx, g.refuse(n, g.owner, g.pool.size.PerOwner))
		}
	}
	if err := g.pool.all.Acquire(ctx, n); err != nil {
		g.leaveShare(n)
		return waited(ctx, g.refuse(n, "", g.pool.size.Limit))
	}
	g.hold(n)
	return nil
}

func waited(ctx context.Context, refused error) error {
	return errors.Join(refused, fmt.Errorf("wait for room: %w", context.Cause(ctx)))
}

func (g *Grant) refuse(n int64, owner string, limit int64) error {
	g.pool.refused.Add(1)
	if owner != "" {
		owner = g.pool.size.Owner + " " + owner
	}
	return &RefusedError{Budget: g.pool.size.Name, Unit: g.pool.size.Unit, Owner: owner, Limit: limit, Want: n}
}

// hold records n acquired units. A grant that was released before gives them back.
func (g *Grant) hold(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	raise(&g.pool.peak, g.pool.inUse.Add(n))
	g.held += n
	if g.released {
		g.giveBack()
	}
}

// Release gives everything back that the grant holds. More calls do nothing.
func (g *Grant) Release() {
	if g == nil || g.pool == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.released {
		return
	}
	g.released = true
	g.giveBack()
	if g.share == nil {
		return
	}
	g.pool.mu.Lock()
	defer g.pool.mu.Unlock()
	if g.share.grants--; g.share.grants == 0 {
		delete(g.pool.owners, g.owner)
	}
}

// giveBack lowers the counter before it releases the semaphores: the next holder raises it again.
func (g *Grant) giveBack() {
	g.pool.inUse.Add(-g.held)
	g.pool.all.Release(g.held)
	g.leaveShare(g.held)
	g.held = 0
}

func (g *Grant) leaveShare(n int64) {
	if g.share != nil {
		g.share.sem.Release(n)
	}
}

// raise sets peak to n if n is larger.
func raise(peak *atomic.Int64, n int64) {
	for old := peak.Load(); n > old && !peak.CompareAndSwap(old, n); old = peak.Load() {
	}
}

// Usage returns the limits and the amount in use.
func (p *Pool) Usage() Usage {
	u := p.size
	u.InUse, u.Peak, u.Refused = p.inUse.Load(), p.peak.Load(), p.refused.Load()
	return u
}
