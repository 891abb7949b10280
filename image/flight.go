package image

import (
	"context"
	"slices"
	"sync"
	"time"
)

// flightKey tells pulls apart. The platform is the node's, always; variant is what else chooses an image. It holds credentials: keys are never printed.
type flightKey struct {
	ref     string
	auth    Auth
	variant string
}

// flight is one pull under way, with any number of callers.
type flight struct {
	key      flightKey
	progress *progress
	cancel   context.CancelCauseFunc
	// done is closed when image and err are set.
	done  chan struct{}
	image *Image
	err   error
	// callers and grace are guarded by flights.mu.
	callers int
	grace   *time.Timer
}

// flights are the pulls under way, one per key.
type flights struct {
	ctx   context.Context // ends all pulls
	grace time.Duration
	wg    sync.WaitGroup

	mu    sync.Mutex
	byKey map[flightKey]*flight
}

// pullFunc does a pull.
type pullFunc func(context.Context, PullRequest, *progress) (*Image, error)

func newFlights(ctx context.Context, grace time.Duration) *flights {
	return &flights{ctx: ctx, grace: grace, byKey: map[flightKey]*flight{}}
}

// join returns the pull of r, which it starts if there is none; the caller must leave it.
func (fs *flights) join(r PullRequest, pull pullFunc) *flight {
	key := flightKey{ref: r.Ref, variant: variantKey(r.Annotations)}
	if r.Auth != nil {
		key.auth = *r.Auth
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f, ok := fs.byKey[key]
	if !ok {
		f = fs.startLocked(key, r, pull)
	}
	f.callers++
	f.progress.setCallers(f.callers)
	if f.grace != nil {
		f.grace.Stop()
		f.grace = nil
	}
	return f
}

func (fs *flights) startLocked(key flightKey, r PullRequest, pull pullFunc) *flight {
	ctx, cancel := context.WithCancelCause(fs.ctx)
	f := &flight{key: key, progress: newProgress(r.Ref), cancel: cancel, done: make(chan struct{})}
	fs.byKey[key] = f
	fs.wg.Go(func() {
		defer cancel(nil)
		f.image, f.err = pull(ctx, r, f.progress)
		fs.mu.Lock()
		fs.forgetLocked(f)
		fs.mu.Unlock()
		close(f.done)
	})
	return f
}

// leave is called by each that joined, once. The last one starts the grace time.
func (fs *flights) leave(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.callers--
	f.progress.setCallers(f.callers)
	if f.callers > 0 || fs.byKey[f.key] != f {
		return
	}
	f.grace = time.AfterFunc(fs.grace, func() { fs.abandon(f) })
}

// abandon ends a pull that nobody came back for. It is forgotten first, so that nobody joins a dying pull.
func (fs *flights) abandon(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f.callers > 0 || fs.byKey[f.key] != f {
		return // someone came back while the timer fired, or it is over
	}
	delete(fs.byKey, f.key)
	f.cancel(errAbandoned)
}

func (fs *flights) forgetLocked(f *flight) {
	if fs.byKey[f.key] == f {
		delete(fs.byKey, f.key)
	}
	if f.grace != nil {
		f.grace.Stop()
		f.grace = nil
	}
}

// list returns the pulls under way, oldest first.
func (fs *flights) list() []PullProgress {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	out := make([]PullProgress, 0, len(fs.byKey))
	for _, f := range fs.byKey {
		out = append(out, f.progress.snapshot())
	}
	slices.SortFunc(out, byStart)
	return out
}

// wait returns when all pulls have ended; the context given to newFlights must have.
func (fs *flights) wait() { fs.wg.Wait() }
