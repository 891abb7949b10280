package netpool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/sandbox/namespaces"
)

const (
	// lookInterval is the time between two comparisons of the ready attachments with the machine.
	lookInterval = 10 * time.Second
	// quiet is the time after the creation of a pod began in which no attachment is made: its containers come first.
	quiet = time.Second
	// busyInterval is the time after which a busy engine is asked again.
	busyInterval = 50 * time.Millisecond
	// longBusy is the time after which it is reported that the engine is busy, which is asked every longBusyInterval then.
	longBusy         = 10 * time.Second
	longBusyInterval = time.Second
	// minBackoff is the pause after an attachment failed; it doubles up to maxBackoff.
	minBackoff = time.Second
	maxBackoff = 5 * time.Minute
	// giveWayPause is the time after a pod could not be attached in which the pool takes no address.
	giveWayPause = time.Minute
	// closeTimeout bounds the end of Run. What is left is freed as garbage by the next daemon.
	closeTimeout = 3 * time.Second
)

var (
	// errGiveWay ends what is being made when a pod needs its address.
	errGiveWay = errors.New("a pod could not be attached")
	errBusy    = errors.New("waits for pods that are being started or stopped")
)

// Run keeps the pool full until ctx ends, and then empties it. It makes one attachment at a time, and none while busy
// returns true. It must be called once.
func (p *Pool) Run(ctx context.Context, busy func() bool) {
	for ctx.Err() == nil {
		timer := time.NewTimer(p.step(ctx, busy))
		select {
		case <-timer.C:
		case <-p.wake:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	p.close(ctx)
}

// step detaches what is stale, makes one attachment if one is missing, and returns when to do it again.
func (p *Pool) step(ctx context.Context, busy func() bool) time.Duration {
	if p.work.Acquire(ctx) != nil {
		return 0
	}
	defer p.work.Release()
	p.expire()
	if p.detachStale(ctx) != nil || !p.missing() { // what cannot be detached does not get more
		return lookInterval
	}
	if wait := p.wait(busy); wait > 0 {
		return wait
	}
	if err := p.network.Generic(); err != nil {
		p.report(err)
		return lookInterval
	}
	p.makeOne(ctx) // if it failed, the next step detaches what was made
	return 0
}

// expire makes those stale that have changed.
func (p *Pool) expire() {
	if time.Since(p.looked) < lookInterval {
		return
	}
	p.looked = time.Now()
	p.mu.Lock()
	ready := p.ready
	p.mu.Unlock()
	for _, a := range ready {
		if p.intact(a) {
			continue
		}
		p.mu.Lock()
		p.ready, p.stale = move(p.ready, p.stale, a)
		p.mu.Unlock()
	}
}

// move moves a to the second list, unless it has been taken from the first.
func move(from, to []*Attachment, a *Attachment) (rest, list []*Attachment) {
	for _, other := range from {
		if other == a {
			to = append(to, a)
		} else {
			rest = append(rest, other)
		}
	}
	return rest, to
}

// missing reports whether there are fewer than there should be. If not, there is no problem.
func (p *Pool) missing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ready) < p.settings.Size {
		return true
	}
	p.problem, p.busySince = "", time.Time{}
	return false
}

// wait returns how long not to make an attachment.
func (p *Pool) wait(busy func() bool) time.Duration {
	p.mu.Lock()
	wait := max(time.Until(p.next), time.Until(p.asked.Add(quiet)))
	p.mu.Unlock()
	if wait > 0 {
		return wait
	}
	if !busy() {
		p.busySince = time.Time{}
		return 0
	}
	return p.waitBusy()
}

// waitBusy returns when to ask a busy engine again. A hung operation can make it busy for hours.
func (p *Pool) waitBusy() time.Duration {
	if p.busySince.IsZero() {
		p.busySince = time.Now()
	}
	if time.Since(p.busySince) < longBusy {
		return busyInterval
	}
	p.report(errBusy)
	return longBusyInterval
}

// report notes why no attachments are made, and logs it once.
func (p *Pool) report(err error) {
	p.mu.Lock()
	changed := p.problem != err.Error()
	p.problem = err.Error()
	p.mu.Unlock()
	if changed {
		p.log.WithError(err).Warn("no pod networks are made in advance")
	}
}

// makeOne makes an attachment, or notes when to try again.
func (p *Pool) makeOne(ctx context.Context) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	a := p.begin(stop)
	if a == nil {
		return
	}
	err := p.attach(ctx, a)
	p.mu.Lock()
	p.making = nil
	interrupted := ctx.Err() != nil
	switch {
	case interrupted: // GiveWay has set the pause and the problem
		p.stale = append(p.stale, a)
	case err == nil:
		p.put(a)
		p.backoff, p.problem = 0, ""
	default:
		p.stale = append(p.stale, a)
		p.backoff = min(max(2*p.backoff, minBackoff), maxBackoff)
		p.next = time.Now().Add(p.backoff)
	}
	p.mu.Unlock()
	if err != nil && !interrupted {
		p.report(err)
	}
}

// begin returns an attachment that is to be made; stop ends that. It returns nil if GiveWay was called meanwhile.
func (p *Pool) begin(stop context.CancelCauseFunc) *Attachment {
	a := newAttachment(p.layout)
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().Before(p.next) {
		return nil
	}
	a.generation, a.sysctls = p.generation, p.settings.Sysctls
	p.making, p.stop = a, stop
	return a
}

// attach makes what detach undoes.
func (p *Pool) attach(ctx context.Context, a *Attachment) (err error) {
	pins := namespaces.Request{Net: a.Netns, Claim: p.layout.NetnsClaim(a.ID, a.Netns)}.WithDefaultSysctls(a.sysctls)
	if err := p.namespaces.Pin(ctx, pins); err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	if a.Result, err = p.network.Setup(ctx, network.Request{PodID: a.ID, Netns: a.Netns}); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	if err := p.namespaces.Sysctl(ctx, a.Netns, pins.Sysctls); err != nil {
		return err
	}
	a.state, err = p.network.State(a.ID)
	return err
}

// detachStale detaches all that are stale. Those that cannot be detached stay.
func (p *Pool) detachStale(ctx context.Context) error {
	p.mu.Lock()
	stale := p.stale
	p.mu.Unlock()
	errs := make([]error, len(stale))
	var all sync.WaitGroup
	for i, a := range stale {
		all.Go(func() {
			if errs[i] = p.detach(ctx, a); errs[i] != nil {
				return
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.stale, _ = move(p.stale, nil, a)
		})
	}
	all.Wait()
	err := errors.Join(errs...)
	if err != nil && ctx.Err() == nil {
		p.report(fmt.Errorf("detach a pod network that no pod has taken: %w", err))
	}
	return err
}

// detach undoes attach, however much of it was done. The namespace is kept until CNI has detached it.
func (p *Pool) detach(ctx context.Context, a *Attachment) error {
	if err := p.free(ctx, a); err != nil {
		return err
	}
	if err := p.namespaces.Unpin(ctx, a.Netns); err != nil {
		return err
	}
	for _, path := range []string{p.layout.ClaimLink(a.ID), p.layout.PodRun(a.ID)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// free has CNI detach a, once.
func (p *Pool) free(ctx context.Context, a *Attachment) error {
	if a.freed {
		return nil
	}
	err := p.network.Teardown(ctx, a.ID)
	if errors.Is(err, network.ErrDamaged) {
		err = p.network.Abandon(ctx, network.Request{PodID: a.ID, Netns: a.Netns})
	}
	if err == nil {
		a.freed = true
		p.freed.Add(1)
	}
	return err
}

// Freed returns how often the pool has freed addresses.
func (p *Pool) Freed() uint64 {
	if p == nil {
		return 0
	}
	return p.freed.Load()
}

// GiveWay detaches all attachments, because a pod could not be attached, with the error cause: they may hold the last
// addresses. freed is what Freed returned before the pod's attempt. GiveWay reports whether addresses were freed since
// then, by this call or for another pod, so that another attempt may succeed. For a while the pool makes no others. A
// cause that no address would change is ignored.
func (p *Pool) GiveWay(ctx context.Context, cause error, freed uint64) bool {
	if p == nil || errdefs.IsInvalidArgument(cause) || errdefs.IsUnavailable(cause) ||
		errors.Is(cause, context.DeadlineExceeded) || ctx.Err() != nil {
		return false
	}
	p.mu.Lock()
	p.next, p.problem = time.Now().Add(giveWayPause), errGiveWay.Error()
	p.stale, p.ready = append(p.stale, p.ready...), nil
	held := len(p.stale) > 0 || p.making != nil
	if p.making != nil {
		p.stop(errGiveWay)
	}
	p.mu.Unlock()
	if held && p.work.Acquire(ctx) == nil {
		defer p.work.Release()
		_ = p.detachStale(ctx) // it reports those that stay: the pod may do with the others
	}
	return p.freed.Load() > freed
}

// close detaches everything that no pod has taken.
func (p *Pool) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	p.mu.Lock()
	p.stale, p.ready = append(p.stale, p.ready...), nil
	p.mu.Unlock()
	if err := p.work.Acquire(ctx); err != nil {
		return
	}
	defer p.work.Release()
	if err := p.detachStale(ctx); err != nil {
		p.log.WithError(err).Warn("failed to detach all pod networks that no pod has taken, the next daemon does that")
	}
}
