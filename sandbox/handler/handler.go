// Package handler knows the runtime handlers of a node: how they are configured, which one runs a pod, and what a pod
// may ask of it. It makes and runs no container; the engine does, with the runtimes that it finds here.
package handler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/record"
)

// Settings are the keys of the configuration that are about all handlers.
type Settings struct {
	// Handlers configures the handlers that differ from the zero Config.
	Handlers map[string]Config `toml:"-"`
	// DefaultHandler is the runtime handler of pods that request none.
	DefaultHandler string `toml:"default_handler" comment:"Runtime handler of pods without a RuntimeClass."`
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

// Set finds the runtimes of pods.
type Set struct {
	// Settings and Runtimes, by the handler's name, do not change.
	Settings *Settings
	Runtimes map[string]oci.Runtime
	// NewRetired, if set, makes a runtime for a handler that is no longer configured.
	NewRetired func(handler string) oci.Runtime

	mu sync.Mutex // guards retired
	// retired holds one runtime per handler: a runtime tracks the calls that wait in it.
	retired map[string]oci.Runtime
}

// Names returns the names of the configured handlers, the default one first, the others sorted.
func (h *Set) Names() []string {
	names := slices.Sorted(maps.Keys(h.Runtimes))
	i := slices.Index(names, h.Settings.DefaultHandler)
	return append([]string{h.Settings.DefaultHandler}, slices.Delete(names, i, i+1)...)
}

// List returns the configured handlers in the order of Names.
func (h *Set) List() []Handler {
	list := make([]Handler, 0, len(h.Runtimes))
	for _, name := range h.Names() {
		rt := h.Runtimes[name]
		list = append(list, Handler{
			Name: name, Default: name == h.Settings.DefaultHandler, Err: rt.Ready(), Features: rt.Features(),
		})
	}
	return list
}

// Choose returns the handler of a new pod, see Route, and its runtime, which is ready: errdefs.ErrUnavailable.
func (h *Set) Choose(config *cri.PodSandboxConfig, requested string) (handler string, rt oci.Runtime, err error) {
	if handler, err = h.Route(config, requested); err != nil {
		return "", nil, err
	}
	if rt, err = h.Find(handler); err != nil {
		return "", nil, err
	}
	if err := rt.Ready(); err != nil {
		return "", nil, fmt.Errorf("%w: runtime handler %q cannot be used: %w",
			errdefs.ErrUnavailable, cmp.Or(handler, h.Settings.DefaultHandler), err)
	}
	return handler, rt, nil
}

// Find returns a configured handler, the default one for "".
func (h *Set) Find(name string) (oci.Runtime, error) {
	if name == "" {
		name = h.Settings.DefaultHandler
	}
	rt, ok := h.Runtimes[name]
	if !ok {
		return nil, fmt.Errorf("%w: no runtime handler %q is configured, known are %v",
			errdefs.ErrInvalidArgument, name, h.Names())
	}
	return rt, nil
}

// Of returns the handler that p was created with, also when it is no longer configured: its containers are still
// watched, stopped and deleted.
func (h *Set) Of(p record.Pod) (oci.Runtime, error) {
	rt, err := h.Find(p.Handler())
	if err == nil || h.NewRetired == nil {
		return rt, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if rt := h.retired[p.Handler()]; rt != nil {
		return rt, nil
	}
	if h.retired == nil {
		h.retired = map[string]oci.Runtime{}
	}
	rt = h.NewRetired(p.Handler())
	if rt == nil {
		return nil, err
	}
	h.retired[p.Handler()] = rt
	return rt, nil
}
