package usage

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// measurable is a probe of any kind.
type measurable interface {
	// due reports whether the last sample is too old for want.
	due(want Want) bool
	// patience is how long a caller waits for a measurement: longer if there is no sample to return instead.
	patience() time.Duration
	measure(ctx context.Context, want Want)
	close()
}

// gauge takes the samples of a probe, which calls it from one goroutine at a time.
type gauge[T any] interface {
	// measure returns a new sample; last is the one before, or nil.
	measure(last *T, want Want) (*T, error)
	// due reports whether sample is too old for want.
	due(sample *T, want Want) bool
	// patience is how long a caller waits for the first sample.
	patience() time.Duration
	// close releases what measure holds open; the next measure opens it again.
	close()
}

// probe measures one thing, one measurement at a time, and keeps the last sample. Readers never wait.
type probe[T any] struct {
	gauge gauge[T]
	// busy is held during a measurement: indefinitely if the kernel does not answer.
	busy *semaphore.Weighted
	// began is the start of the measurement in progress in Unix nanoseconds, 0 for none.
	began  atomic.Int64
	last   atomic.Pointer[T]
	closed atomic.Bool
	// asleep is the time of the next attempt after an error, in Unix nanoseconds.
	asleep atomic.Int64
	// failed handles an error and returns the time until the next attempt.
	failed func(error) time.Duration
}

func newProbe[T any](g gauge[T], failed func(error) time.Duration) *probe[T] {
	return &probe[T]{gauge: g, busy: semaphore.NewWeighted(1), failed: failed}
}

// value returns the last sample, nil when there is none. The probe may be nil.
func (p *probe[T]) value() *T {
	if p == nil {
		return nil
	}
	return p.last.Load()
}

func (p *probe[T]) patience() time.Duration {
	if p.last.Load() != nil {
		return Patience
	}
	return p.gauge.patience()
}

func (p *probe[T]) due(want Want) bool {
	last := p.last.Load()
	return time.Now().UnixNano() >= p.asleep.Load() && (last == nil || p.gauge.due(last, want))
}

// stuck reports whether the measurement in progress has taken longer than callers wait.
func (p *probe[T]) stuck() bool {
	began := p.began.Load()
	return began != 0 && time.Since(time.Unix(0, began)) > Patience
}

// measure takes a new sample, or waits for the measurement in progress.
func (p *probe[T]) measure(ctx context.Context, want Want) {
	if p.stuck() {
		return
	}
	if p.busy.Acquire(ctx, 1) == nil {
		p.sample(want)
		p.busy.Release(1)
	}
	// Closed during a measurement. An Acquire that fails may have held the semaphore for a moment, during which the end of
	// that measurement could not close the gauge.
	if p.closed.Load() {
		p.close()
	}
}

// sample needs p.busy.
func (p *probe[T]) sample(want Want) {
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

// close closes the gauge, now or at the end of the measurement in progress. It does not wait.
func (p *probe[T]) close() {
	p.closed.Store(true)
	if p.busy.TryAcquire(1) {
		p.gauge.close()
		p.busy.Release(1)
	}
}
