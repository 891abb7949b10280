package sandbox

import (
	"context"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/sandbox/nri"
	"github.com/podd-project/podd/sandbox/record"
)

// evictionGrace is the time that a container gets to end when a plugin evicts it, the default of Kubernetes.
const evictionGrace = 30 * time.Second

// adjust lets the plugins change s, the config.json of c.
func (c *Container) adjust(
	ctx context.Context, deps Deps, cfg *Config, rt Runtime, s *specs.Spec,
) (nri.Adjustment, error) {
	return deps.Plugins.Create(ctx, nri.Creation{
		Container: c.View(), Spec: s, Handler: handlerFacts(rt), Facts: deps.Facts, InjectCDI: deps.CDI.Inject,
		BlockIO: cfg.BlockIO,
	})
}

// pluginEngine is the engine as plugins use it.
type pluginEngine struct {
	e    *Engine
	spec func(id string) (*specs.Spec, error)
}

// ForPlugins returns the engine as plugins use it. Spec reads the config.json of a container.
func ForPlugins(e *Engine, spec func(id string) (*specs.Spec, error)) nri.Engine {
	return pluginEngine{e, spec}
}

// Existing returns the pods that are ready or being created, and the containers that have not exited.
func (r pluginEngine) Existing() (pods []record.PodView, containers []record.ContainerView) {
	for _, p := range r.e.store.pods.List(nil) {
		if s := p.Status().State; s == record.PodReady || s == record.PodCreating {
			pods = append(pods, p.View())
		}
	}
	for _, c := range r.e.store.containers.List(nil) {
		if c.Status().State != record.ContainerExited {
			containers = append(containers, c.View())
		}
	}
	return pods, containers
}

func (r pluginEngine) Spec(id string) (*specs.Spec, error) { return r.spec(id) }

// Update sets limits. A container that has exited is not an error.
func (r pluginEngine) Update(ctx context.Context, id string, limits nri.Resources) error {
	c, err := r.e.Container(id)
	if err == nil {
		err = r.e.limitContainer(ctx, c, func(context.Context) (nri.Resources, error) { return limits, nil })
	}
	if errdefs.IsNotFound(err) || c != nil && c.Status().State == record.ContainerExited {
		return nil
	}
	return err
}

// Evict stops a container as a kubelet would.
func (r pluginEngine) Evict(ctx context.Context, id, _ string) error {
	return r.e.StopContainer(ctx, id, evictionGrace)
}
