package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/usage"
)

// Deps are the mechanisms that an engine drives.
type Deps struct {
	Namespaces Namespaces
	Network    Network
	Images     Images
	// Runtimes are the handlers by name.
	Runtimes map[string]Runtime
	// Former, if set, makes what watches, kills and deletes the containers of a handler that is not configured any more.
	Former func(handler string) Runtime
	// Facts is what the machine can do, see host.Probe.
	Facts spec.Facts
	CDI   *host.CDI
	// Cgroups and Disk are the sources of resource usage; without them nothing is measured.
	Cgroups usage.Cgroups
	Disk    usage.Disk
	Log     logrus.FieldLogger
	// Observe, if set, is told of each operation that has ended, with the context of the caller who began it. It is
	// called in the operation's way and must not wait.
	Observe func(ctx context.Context, o operation.Operation)
}

// Engine runs the pods of one node. It is the only writer of their records.
type Engine struct {
	cfg Config
	Deps
	store    *store
	shm      shmMounter
	resolver *host.Resolver
	events   bus
	usage    *usage.Collector
	// life ends with Close; work is everything that runs until then.
	life life
	work work
	// unread are the records that Recover could not read yet; loaded is closed once it has tried them all, and settling are
	// those pods and containers that it is not done with.
	unread   unread
	loaded   chan struct{}
	settling gate
	// looking are those of settling whose state is not known yet: Recover waits for them alone. recovered is closed at its
	// end; turns bounds how many are undone at once after that.
	looking   gate
	recovered chan struct{}
	turns     chan struct{}
	// kick has KeepClean look again; debts are what it could not free.
	kick  chan struct{}
	debts atomic.Pointer[[]Debt]
	// quarantined are the damaged records that were moved away.
	quarantined quarantineList
	operations  operation.Tracker
	// former are the handlers that records name and the configuration does not, any more.
	former former
}

// stuckLooks bounds the goroutines left waiting for a volume that never answers.
const stuckLooks = 64

// errClosing is why work ends when the daemon stops.
var errClosing = fmt.Errorf("%w: podd is shutting down", errdefs.ErrUnavailable)

// New returns an engine that knows of no pods yet: call Recover next.
func New(cfg Config, deps Deps) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("sandbox configuration: %w", err)
	}
	if _, ok := deps.Runtimes[cfg.DefaultHandler]; !ok {
		return nil, fmt.Errorf("default_handler: %q is not among the configured handlers", cfg.DefaultHandler)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	e := &Engine{
		cfg: cfg, Deps: deps, operations: operation.Tracker{Slow: cfg.SlowOperation, Log: deps.Log, Observe: deps.Observe}, store: newStore(), shm: tmpfs{}, resolver: host.NewResolver(stuckLooks), life: life{ctx: ctx, end: cancel},
		loaded: make(chan struct{}), recovered: make(chan struct{}),
		turns: make(chan struct{}, undoParallel), kick: make(chan struct{}, 1), former: former{make: deps.Former},
	}
	e.usage = e.newCollector()
	if deps.Cgroups != nil {
		e.work.Go(func() { e.usage.Run(ctx, e.usageTargets) })
	}
	return e, nil
}

// Close ends the engine's own work and leaves the pods running. Creations under way are undone. The cgroup that
// podd makes for pods without a parent goes with the last of them.
func (e *Engine) Close(ctx context.Context) error {
	e.life.end(errClosing)
	done := make(chan struct{})
	go func() {
		e.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("close engine: work is still going on: %w", context.Cause(ctx))
	}
	if !e.cfg.SystemdCgroup { // systemd removes its slices itself
		return cgroups.RemoveEmpty("/" + cgroupPrefix)
	}
	return nil
}

// Pods returns the pods that a caller has heard of, oldest first.
func (e *Engine) Pods() []*Pod {
	pods := e.store.podList()
	listed := pods[:0]
	for _, p := range pods {
		if p.creation.claimed.Load() {
			listed = append(listed, p)
		}
	}
	return listed
}

// Containers returns the containers that a caller has heard of, oldest first.
func (e *Engine) Containers() []*Container { return listed(e.store.containerList(nil)) }

// ContainersOf returns the containers of one pod, oldest first.
func (e *Engine) ContainersOf(p *Pod) []*Container { return listed(e.store.containerList(p)) }

func listed(cs []*Container) []*Container {
	out := cs[:0]
	for _, c := range cs {
		if c.creation.claimed.Load() {
			out = append(out, c)
		}
	}
	return out
}

// Pod finds a pod by id or unique prefix: errdefs.ErrNotFound, ErrInvalidArgument when ambiguous, or ErrUnavailable when
// there is a record of it that cannot be read at present.
func (e *Engine) Pod(id string) (*Pod, error) {
	p, err := e.store.pod(id)
	return p, e.unread.explain(id, err)
}

// Container finds a container by id or unique prefix; see Pod.
func (e *Engine) Container(id string) (*Container, error) {
	c, err := e.store.container(id)
	return c, e.unread.explain(id, err)
}

// NetworkReady says why pods cannot be attached to the network, or nil. It answers from memory.
func (e *Engine) NetworkReady() error { return e.Network.Ready() }

// InUse returns the ids of the containers that were made from the image or mount it as a volume.
func (e *Engine) InUse(imageID string) []string {
	var ids []string
	for _, c := range e.store.containerList(nil) {
		if c.ImageID == imageID || e.mountsImage(c, imageID) {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// Handler is one runtime handler as the node offers it.
type Handler struct {
	Name    string
	Default bool
	// Err says why the handler cannot be used, nil when it can.
	Err      error
	Features oci.Features
}

// Handlers returns the configured handlers, the default one first, the others by name.
func (e *Engine) Handlers() []Handler {
	handlers := make([]Handler, 0, len(e.Runtimes))
	for _, name := range e.handlerNames() {
		rt := e.Runtimes[name]
		handlers = append(handlers, Handler{Name: name, Default: name == e.cfg.DefaultHandler, Err: rt.Ready(), Features: rt.Features()})
	}
	return handlers
}

// runtime finds the handler of a new pod; the message lists the known ones.
func (e *Engine) runtime(handler string) (Runtime, error) {
	if handler == "" {
		handler = e.cfg.DefaultHandler
	}
	rt, ok := e.Runtimes[handler]
	if !ok {
		return nil, fmt.Errorf("%w: no runtime handler %q is configured, known are %v", errdefs.ErrInvalidArgument, handler, e.handlerNames())
	}
	return rt, nil
}

// undo runs f on a context of its own: what has to be taken back is taken back whoever has given up waiting.
func (e *Engine) undo(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), e.cfg.UndoTimeout,
		fmt.Errorf("teardown took longer than %v: %w", e.cfg.UndoTimeout, context.DeadlineExceeded))
	defer cancel()
	return f(ctx)
}

// after runs f once d has passed, unless the engine is closed before.
func (e *Engine) after(d time.Duration, f func()) {
	e.work.Go(func() {
		if sleep(e.life.ctx, d) {
			f()
		}
	})
}

// sleep waits for d, and returns false when ctx has ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func newID() string {
	var b [32]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

// deadline returns err with the deadline's own cause when ctx ended by it.
func deadline(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
