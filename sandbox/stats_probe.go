package sandbox

import (
	"context"
	"sync/atomic"
	"time"
)

// measurable is a probe of any kind.
type measurable interface {
	// due is true when the last measurement does not do for want.
	due(want WantUsage) bool
	// known is true when there is something to show, if this measurement fails or takes too long.
	known() bool
	measure(ctx context.Context, want WantUsage)
	close()
}

// gauge does the measuring for a probe, which never calls it twice at once.
type gauge[T any] interface {
	// measure returns a new sample; last is the one before, or nil.
	measure(last *T, want WantUsage) (*T, error)
	// due is true when the sample does not do for want any more.
	due(sample *T, want WantUsage) bool
	// close gives back what measure keeps; the next measure gets it again.
	close()
}

// probe measures one thing, never twice at once, and remembers the last sample. Readers never wait.
type probe[T any] struct {
	gauge gauge[T]
	// busy is held while the gauge works. A kernel that does not answer may keep it for ever.
	busy slot
	// began is when the measurement that is under way began, in Unix nanoseconds, 0 when none is.
	began  atomic.Int64
	last   atomic.Pointer[T]
	closed atomic.Bool
	// asleep is until when nothing is measured, in Unix nanoseconds: there is nothing to measure as things are.
	asleep atomic.Int64
	// failed is told of errors, and says how long to leave the gauge alone.
	failed func(error) time.Duration
}

func newProbe[T any](g gauge[T], failed func(error) time.Duration) *probe[T] {
	return &probe[T]{gauge: g, busy: newSlot(), failed: failed}
}

// value is the last sample, nil when there is none. The probe may be nil.
func (p *probe[T]) value() *T {
	if p == nil {
		return nil
	}
	return p.last.Load()
}

func (p *probe[T]) known() bool { return p.last.Load() != nil }

func (p *probe[T]) due(want WantUsage) bool {
	if last := p.last.Load(); last != nil {
		return p.gauge.due(last, want)
	}
	return time.Now().UnixNano() >= p.asleep.Load()
}

// stuck is true when a measurement has been under way for so long that it is not worth waiting for.
func (p *probe[T]) stuck() bool {
	began := p.began.Load()
	return began != 0 && time.Since(time.Unix(0, began)) > patience
}

// measure takes a new sample, or waits for the one that somebody else is taking.
func (p *probe[T]) measure(ctx context.Context, want WantUsage) {
	if p.stuck() || p.busy.take(ctx) != nil {
		return
	}
	p.sample(want)
	p.busy.release()
	if p.closed.Load() { // meanwhile, when the gauge was not free to be closed
		p.close()
	}
}

// sample needs p.busy.
func (p *probe[T]) sample(want WantUsage) {
	if p.closed.Load() || !p.due(want) {
		return
	}
	p.began.Store(time.Now().UnixNano())
	defer p.began.Store(0)
	next, err := p.gauge.measure(p.last.Load(), want)
	p.last.Store(next)
	if err != nil {
		p.asleep.Store(time.Now().Add(p.failed(err)).UnixNano())
	}
}

// close gives back what the gauge keeps, now or when the measurement under way has ended. It does not wait.
func (p *probe[T]) close() {
	p.closed.Store(true)
	select {
	case p.busy <- struct{}{}:
		p.gauge.close()
		p.busy.release()
	default:
	}
}
