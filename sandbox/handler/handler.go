// Package handler knows the runtime handlers of a node: how they are configured, which one runs a pod, which requests
// it accepts, and the node's defaults for values that no field of the CRI sets, which a handler can override. It makes
// and runs no container; the engine, its only caller, does, with the runtimes that it finds here.
package handler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
)

// Auto is the DefaultHandler that leaves the choice to podd, see Default.
const Auto = "auto"

// Settings are the keys of the configuration that are about all handlers.
type Settings struct {
	// Handlers configures the handlers that differ from the zero Config.
	Handlers map[string]Config `toml:"-"`
	// DefaultHandler is the runtime handler of pods that request none, or Auto.
	DefaultHandler string `toml:"default_handler" comment:"Runtime handler of pods without a RuntimeClass. \"auto\": crun while that handler can be used, which starts containers and commands faster but cannot checkpoint them, else runc."`
	// HostAccessHandler is the handler of pods that request none and need the node's kernel.
	HostAccessHandler string `toml:"host_access_handler" comment:"Runtime handler of pods without a RuntimeClass that are privileged or use a namespace of the node, if default_handler has a kernel of its own (gVisor, a VM). Empty: such pods are refused."`
	// AnnotationHandlers are the handlers of pods that request none and have one of these annotations.
	AnnotationHandlers map[string]string `toml:"annotation_handlers" comment:"Runtime handlers of pods without a RuntimeClass, by the name of an annotation that the pod sets to \"true\". Used with other runtimes: io.kubernetes.cri.untrusted-workload, runtime.frakti.alpha.kubernetes.io/OSContainer and runtime.frakti.alpha.kubernetes.io/Unikernel."`
}

// Handler is one runtime handler as the node offers it.
type Handler struct {
	Name    string
	Default bool
	// Err is why the handler cannot be used, nil when it can.
	Err      error
	Features oci.Features
}

// Generation is the part that a reload of the configuration replaces as a whole. It is immutable.
type Generation struct {
	Settings *Settings
	// Runtimes are the configured handlers, by name.
	Runtimes map[string]oci.Runtime
}

// Set finds the runtimes of pods.
type Set struct {
	current atomic.Pointer[Generation]
	// NewRetired, if set, makes a runtime for a handler that is no longer configured.
	NewRetired func(handler string) oci.Runtime

	mu sync.Mutex // guards retired
	// retired holds one runtime per handler: a runtime tracks the calls that wait in it.
	retired map[string]oci.Runtime
}

// Choice is the handler of a pod, as it was configured when it was chosen.
type Choice struct {
	// Requested is the handler that the pod or an annotation asks for, "" for the default handler. Name is the
	// handler's name.
	Requested, Name string
	Runtime         oci.Runtime
	Config          Config
}

// Check reports why a generation cannot be used, or nil.
func (g *Generation) Check() error {
	if name := g.Settings.Fallback(); g.Runtimes[name] == nil {
		return fmt.Errorf("default_handler: %q is not among the configured handlers", name)
	}
	return nil
}

// Fallback returns the name of the handler that must be configured for pods that request none.
func (s *Settings) Fallback() string {
	if s.DefaultHandler == Auto {
		return "runc"
	}
	return s.DefaultHandler
}

// Default returns the name of the handler of pods that request none. For Auto that is crun while it is configured and
// ready: a pod keeps the handler that it was created with.
func (g *Generation) Default() string {
	if crun := g.Runtimes["crun"]; g.Settings.DefaultHandler == Auto && crun != nil && crun.Ready() == nil {
		return "crun"
	}
	return g.Settings.Fallback()
}

// Replace makes g, which passes Check, the present generation. Pods keep the handler that they have, see Held.
func (h *Set) Replace(g *Generation) { h.current.Store(g) }

// Current returns the present generation.
func (h *Set) Current() *Generation { return h.current.Load() }

// Names returns the names of the configured handlers, the default one first, the others sorted.
func (g *Generation) Names() []string {
	names := slices.Sorted(maps.Keys(g.Runtimes))
	first := g.Default()
	return append([]string{first}, slices.DeleteFunc(names, func(name string) bool { return name == first })...)
}

// List returns the configured handlers in the order of Names.
func (g *Generation) List() []Handler {
	list := make([]Handler, 0, len(g.Runtimes))
	for i, name := range g.Names() {
		rt := g.Runtimes[name]
		list = append(list, Handler{Name: name, Default: i == 0, Err: rt.Ready(), Features: rt.Features()})
	}
	return list
}

// Choose returns the handler of a new pod, see Route. Its runtime is ready: errdefs.ErrUnavailable.
func (h *Set) Choose(config *cri.PodSandboxConfig, requested string) (*Choice, error) {
	g := h.Current()
	requested, err := g.Route(config, requested)
	if err != nil {
		return nil, err
	}
	c, err := g.Find(requested)
	if err != nil {
		return nil, err
	}
	if err := c.Runtime.Ready(); err != nil {
		return nil, fmt.Errorf("%w: runtime handler %q cannot be used: %w", errdefs.ErrUnavailable, c.Name, err)
	}
	return c, nil
}

// Find returns a configured handler, the default one for "".
func (g *Generation) Find(requested string) (*Choice, error) {
	name := cmp.Or(requested, g.Default())
	rt, ok := g.Runtimes[name]
	if !ok {
		return nil, fmt.Errorf("%w: no runtime handler %q is configured, known are %v",
			errdefs.ErrInvalidArgument, name, g.Names())
	}
	return &Choice{Requested: requested, Name: name, Runtime: rt, Config: g.Settings.Handlers[name]}, nil
}

// retire returns a runtime for the containers of a handler that is not configured, nil if there is none.
func (h *Set) retire(name string) oci.Runtime {
	if h.NewRetired == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if rt := h.retired[name]; rt != nil {
		return rt
	}
	rt := h.NewRetired(name)
	if rt == nil {
		return nil
	}
	if h.retired == nil {
		h.retired = map[string]oci.Runtime{}
	}
	h.retired[name] = rt
	return rt
}
