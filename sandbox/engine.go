package sandbox

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox/budget"
	"github.com/podd-project/podd/sandbox/files"
	"github.com/podd-project/podd/sandbox/garbage"
	"github.com/podd-project/podd/sandbox/handler"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/nri"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/sandbox/snapshot"
	"github.com/podd-project/podd/sandbox/usage"
)

// Deps are the mechanisms that an engine drives.
type Deps struct {
	Namespaces Namespaces
	Network    Network
	Images     Images
	// Mounter mounts the pods' filesystems, see files.Kernel.
	Mounter files.Mounter
	// Runtimes are the handlers by name.
	Runtimes map[string]Runtime
	// Retired, if set, makes a runtime that watches, kills and deletes the containers of a handler that is no longer
	// configured.
	Retired func(handler string) Runtime
	// Facts are the features of the machine, see host.Probe.
	Facts spec.Facts
	CDI   *host.CDI
	// Cgroups and Disk are the sources of resource usage; without them nothing is measured.
	Cgroups usage.Cgroups
	Disk    usage.Disk
	// Prime, if set, is called at the beginning of a container's creation and runs concurrently, see cgroups.Tree.
	Prime func()
	// Records is the disk that records are written to, nil for checkpoint.Files.
	Records checkpoint.Disk
	// Plugins are the node's NRI plugins, nil for none.
	Plugins Plugins
	// Budgets bound what calls cost.
	Budgets *budget.Table
	Log     logrus.FieldLogger
	// Observe, if set, is called with each operation that has ended and the context of the call that started it. The
	// operation waits for it, so it must not block.
	Observe func(ctx context.Context, o operation.Operation)
	// Exited, if set, is called with the reason of each exit of a container.
	Exited func(reason string)
	// OOMCause, if set, says which limit a container that was killed for lack of memory had reached, as cgroups.OOMCause.
	OOMCause func(container, sandbox string) string
}

// Engine runs the pods of one node. It is the only writer of their records.
type Engine struct {
	// cfg is immutable; Reconfigure replaces it.
	cfg        atomic.Pointer[Config]
	node       Node
	deps       Deps
	paths      record.Layout
	handlers   handler.Set
	store      store
	files      files.Files
	resolver   *host.Resolver
	events     lifecycle.Bus[*Pod]
	usage      *usage.Collector
	operations operation.Tracker
	// life ends with Close; work is everything that runs until then.
	life     lifecycle.Lifetime
	work     lifecycle.Work
	recovery recovery
	janitor  *garbage.Janitor
	// snapshotKey seals checkpoints.
	snapshotKey snapshot.Key
}

// stuckLooks bounds the goroutines that wait for a volume that does not answer.
const stuckLooks = 64

// errClosing is the cause of everything that ends because the daemon stops.
var errClosing = fmt.Errorf("%w: podd is shutting down", errdefs.ErrUnavailable)

// New returns an engine without pods: call Recover next.
func New(node Node, cfg Config, deps Deps) (*Engine, error) {
	if deps.Plugins == nil {
		deps.Plugins = nri.New(nri.Config{}, "", deps.Log)
	}
	if deps.Records == nil {
		deps.Records = checkpoint.Files{}
	}
	e := &Engine{
		node: node, deps: deps, paths: node.Layout, store: newStore(),
		files:    files.Files{Layout: node.Layout, Mounter: deps.Mounter, ShmSize: cfg.ShmSize},
		resolver: host.NewResolver(stuckLooks, cfg.CreateMissingHostPaths), life: lifecycle.NewLifetime(context.Background()),
		operations: operation.Tracker{Slow: slowOperation, Log: deps.Log, Observe: deps.Observe},
	}
	e.handlers.NewRetired = deps.Retired
	if err := e.Reconfigure(cfg, deps.Runtimes); err != nil {
		e.life.End(err)
		return nil, err
	}
	e.snapshotKey.Path = node.SnapshotKey()
	e.recovery = newRecovery(e)
	e.janitor = newJanitor(e)
	e.usage = newCollector(cfg, deps)
	if deps.Cgroups != nil {
		e.work.Go(func() { e.usage.Run(e.life.Context(), e.usageTargets) })
	}
	return e, nil
}

// Close ends the engine's own work and leaves the pods running. Creations in progress are undone. The cgroup that podd
// makes for pods without a parent is removed with the last of them.
func (e *Engine) Close(ctx context.Context) error {
	e.life.End(errClosing)
	done := make(chan struct{})
	go func() {
		e.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("close engine: work is still in progress: %w", context.Cause(ctx))
	}
	if !e.node.SystemdCgroup { // systemd keeps its slice, empty, until podd wipe or the next boot
		return cgroups.RemoveEmpty("/" + spec.DefaultCgroup)
	}
	return nil
}

// Pods returns the pods whose ids a caller has received, oldest first.
func (e *Engine) Pods() []*Pod { return claimed(e.store.pods.List(nil)) }

// Containers returns the containers whose ids a caller has received, oldest first.
func (e *Engine) Containers() []*Container { return claimed(e.store.containers.List(nil)) }

// ContainersOf returns the containers of one pod, oldest first; see Containers.
func (e *Engine) ContainersOf(p *Pod) []*Container { return claimed(e.store.containersOf(p)) }

func claimed[T lifecycle.Object](all []T) []T {
	return slices.DeleteFunc(all, func(o T) bool { return !o.Creation().Claimed() })
}

// Pod finds a pod by id or unique prefix: errdefs.ErrNotFound, ErrInvalidArgument when ambiguous, or ErrUnavailable
// when there is a record of it that cannot be read at present.
func (e *Engine) Pod(id string) (*Pod, error) {
	p, err := e.store.pods.Find(id)
	return p, e.recovery.unread.Explain(id, err)
}

// Container finds a container by id or unique prefix; see Pod.
func (e *Engine) Container(id string) (*Container, error) {
	c, err := e.store.containers.Find(id)
	return c, e.recovery.unread.Explain(id, err)
}

// NetworkReady returns why pods cannot be attached to the network, or nil. It answers from memory.
func (e *Engine) NetworkReady() error { return e.deps.Network.Ready() }

// Event is an event of a pod or container; see lifecycle.Event.
type Event = lifecycle.Event[*Pod]

// Events calls send for every event from now on, in order, until ctx ends or send fails. A subscriber that falls too
// far behind gets errdefs.ErrResourceExhausted and has to list again.
func (e *Engine) Events(ctx context.Context, send func(Event) error) error {
	return e.events.Send(ctx, e.life.Context(), send)
}

// InUse returns the ids of the containers that were created from the image or mount it as a volume.
func (e *Engine) InUse(imageID string) []string {
	var ids []string
	for _, c := range e.store.containers.List(nil) {
		if c.ImageID == imageID || e.mountsImage(c, imageID) {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// Handler is one runtime handler; see handler.Handler.
type Handler = handler.Handler

// Handlers returns the configured handlers, the default one first, the others by name.
func (e *Engine) Handlers() []Handler { return e.handlers.Current().List() }
