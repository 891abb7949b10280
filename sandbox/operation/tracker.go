package operation

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// Tracker holds the operations in progress and logs those that take too long.
type Tracker struct {
	// Slow is the age at which an operation is logged, once.
	Slow time.Duration
	Log  logrus.FieldLogger
	// Observe, if set, is called with each operation that has ended, for histograms and traces. ctx is the caller's.
	Observe func(ctx context.Context, o Operation)

	mu         sync.Mutex // guards inProgress
	inProgress map[*Active]struct{}
}

// Active is an Operation in progress.
type Active struct {
	ctx     context.Context // the caller's, for Observe
	tracker *Tracker

	mu    sync.Mutex // guards the fields below
	state Operation
	slow  *time.Timer
}

type contextKey struct{}

// Begin starts an operation. Callees report its stages through the returned context, see SetStage. The caller must call
// End.
func (t *Tracker) Begin(ctx context.Context, o Operation) (context.Context, *Active) {
	o.Began = time.Now()
	a := &Active{ctx: ctx, tracker: t, state: o}
	a.mu.Lock()
	a.slow = time.AfterFunc(t.Slow, a.logSlow)
	a.mu.Unlock()
	t.mu.Lock()
	if t.inProgress == nil {
		t.inProgress = map[*Active]struct{}{}
	}
	t.inProgress[a] = struct{}{}
	t.mu.Unlock()
	return context.WithValue(ctx, contextKey{}, a), a
}

// List returns the operations in progress, oldest first.
func (t *Tracker) List() []Operation {
	t.mu.Lock()
	active := slices.Collect(maps.Keys(t.inProgress))
	t.mu.Unlock()
	out := make([]Operation, 0, len(active))
	for _, a := range active {
		out = append(out, a.Snapshot())
	}
	slices.SortFunc(out, func(a, b Operation) int {
		return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.Pod, b.Pod))
	})
	return out
}

// FromContext returns the operation that ctx belongs to, or nil.
func FromContext(ctx context.Context) *Active {
	a, _ := ctx.Value(contextKey{}).(*Active)
	return a
}

// SetStage starts the next stage of the operation that ctx belongs to, if there is one. The current stage set again
// continues.
func SetStage(ctx context.Context, name string) {
	a := FromContext(ctx)
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state.Stage() == name {
		return
	}
	a.updateStageLocked()
	a.state.Stages = append(a.state.Stages, Stage{Name: name, After: Duration(time.Since(a.state.Began))})
}

// MarkFailed says that the current stage of the operation that ctx belongs to has failed: later ones undo it.
func MarkFailed(ctx context.Context) {
	if a := FromContext(ctx); a != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.state.FailedIn = a.state.Stage()
	}
}

func (a *Active) updateStageLocked() {
	if n := len(a.state.Stages); n > 0 {
		last := &a.state.Stages[n-1]
		last.Took = Duration(time.Since(a.state.Began)) - last.After
	}
}

// Unlimited is for operations that take as long as their callers want.
const Unlimited time.Duration = -1

// Allow delays the log line by d, the time that the caller has asked to wait: a grace period, or Unlimited.
func (a *Active) Allow(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d == Unlimited {
		a.slow.Stop()
		return
	}
	if d > 0 {
		a.slow.Reset(a.tracker.Slow + d)
	}
}

// End ends the operation with its error and returns it.
func (a *Active) End(err error) Operation {
	a.mu.Lock()
	a.slow.Stop()
	a.updateStageLocked()
	a.state = a.state.Ended(err)
	ended := a.state
	a.mu.Unlock()
	t := a.tracker
	t.mu.Lock()
	delete(t.inProgress, a)
	t.mu.Unlock()
	if t.Observe != nil {
		t.Observe(a.ctx, ended)
	}
	return ended
}

// Snapshot returns the operation as it is now.
func (a *Active) Snapshot() Operation {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.state.Done {
		a.updateStageLocked()
		a.state.Took = Duration(time.Since(a.state.Began))
	}
	o := a.state
	o.Stages = slices.Clone(o.Stages)
	return o
}

func (a *Active) logSlow() {
	o := a.Snapshot()
	if o.Done {
		return
	}
	a.tracker.Log.WithFields(logrus.Fields{
		"verb": o.Verb, "pod": o.Pod, "container": o.Container, "name": o.Name, "stage": o.Stage(),
		"age":      time.Duration(o.Took).Round(time.Millisecond).String(),
		"in_stage": o.InStage().Round(time.Millisecond).String(),
	}).Warn("slow operation")
}

// History keeps the last operation of each verb on one pod or container. The zero value is ready to use.
type History struct {
	mu   sync.Mutex // guards last
	last map[string]Operation
}

// Add records an operation that has ended.
func (h *History) Add(o Operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last == nil {
		h.last = map[string]Operation{}
	}
	h.last[o.Verb] = o
}

// List returns the operations in the order in which they began.
func (h *History) List() []Operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(maps.Values(h.last), func(a, b Operation) int { return a.Began.Compare(b.Began) })
}
