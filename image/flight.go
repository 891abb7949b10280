package image

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/podd-project/podd/image/registry"
)

// flightKey identifies a pull. The platform is always the node's; variant is the rest of what selects an image. A key
// holds credentials and must not be printed.
type flightKey struct {
	ref     string
	auth    Auth
	variant string
	// files are PullRequest.files.
	files string
}

// flight is one pull in progress, with any number of callers.
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

// flights are the pulls in progress, one per key.
type flights struct {
	ctx   context.Context // ends all pulls
	grace time.Duration
	wg    sync.WaitGroup

	mu    sync.Mutex
	byKey map[flightKey]*flight
	// loads are images that are loaded from files.
	loads map[*progress]struct{}
	// failures has the names whose last pull failed.
	failures map[string]PullFailure
}

// maxFailures bounds the failed pulls that are listed.
const maxFailures = 64

// PullFailure is a name whose last pull failed.
type PullFailure struct {
	Ref   string    `json:"ref"`
	Error string    `json:"error"`
	Time  time.Time `json:"time"`
}

// pullFunc does a pull.
type pullFunc func(context.Context, PullRequest, *progress) (*Image, error)

func newFlights(ctx context.Context, grace time.Duration) *flights {
	return &flights{ctx: ctx, grace: grace, byKey: map[flightKey]*flight{}, loads: map[*progress]struct{}{},
		failures: map[string]PullFailure{}}
}

// join returns the pull of r and starts it if there is none. The caller must call leave.
func (fs *flights) join(r PullRequest, pull pullFunc) *flight {
	key := flightKey{ref: r.Ref, variant: registry.VariantKey(r.Annotations), files: r.files}
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
		fs.noteLocked(r.Ref, f.err)
		fs.mu.Unlock()
		close(f.done)
	})
	return f
}

// noteLocked remembers whether the pull of a name failed.
func (fs *flights) noteLocked(ref string, err error) {
	if errors.Is(err, registry.ErrAbandoned) || errors.Is(err, registry.ErrClosing) {
		return // nothing is known about the image
	}
	delete(fs.failures, ref)
	if err == nil {
		return
	}
	if len(fs.failures) >= maxFailures {
		delete(fs.failures, fs.failedLocked()[maxFailures-1].Ref)
	}
	fs.failures[ref] = PullFailure{Ref: ref, Error: err.Error(), Time: time.Now()}
}

// forget removes the names of an image that has been loaded from a file from the failed pulls.
func (fs *flights) forget(names ...string) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, name := range names {
		delete(fs.failures, name)
	}
}

// failedLocked returns the failed pulls, the newest first.
func (fs *flights) failedLocked() []PullFailure {
	return slices.SortedFunc(maps.Values(fs.failures), func(a, b PullFailure) int { return b.Time.Compare(a.Time) })
}

// leave undoes one join. The last one starts the grace period.
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

// abandon cancels a pull that no caller came back to. It removes the pull first, so that no caller joins a cancelled
// one.
func (fs *flights) abandon(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f.callers > 0 || fs.byKey[f.key] != f {
		return // a caller came back while the timer fired, or the pull is finished
	}
	delete(fs.byKey, f.key)
	f.cancel(registry.ErrAbandoned)
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

// track lists p among the pulls until done is called.
func (fs *flights) track(p *progress) (done func()) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.loads[p] = struct{}{}
	return func() {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		delete(fs.loads, p)
	}
}

// failed returns the names whose last pull failed, the newest first.
func (fs *flights) failed() []PullFailure {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.failedLocked()
}

// list returns the pulls and loads in progress, oldest first.
func (fs *flights) list() []PullProgress {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	out := make([]PullProgress, 0, len(fs.byKey))
	for _, f := range fs.byKey {
		out = append(out, f.progress.snapshot())
	}
	for p := range fs.loads {
		out = append(out, p.snapshot())
	}
	slices.SortFunc(out, byStart)
	return out
}

// wait returns when all pulls have ended. Cancel the context given to newFlights first.
func (fs *flights) wait() { fs.wg.Wait() }
