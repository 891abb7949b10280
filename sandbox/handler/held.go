package handler

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/sandbox/record"
)

// Held is the handler of one pod. A pod keeps the one that it was created with, as it was configured then, also when a
// reload changes or removes it. After a restart of podd it gets the handler of that name, as it is configured at its
// first use.
type Held struct {
	set    *Set
	pod    *record.Pod
	choice atomic.Pointer[Choice]
}

// Hold returns the handler of p, which must not change. chosen is nil for a pod that was created before podd started.
func (h *Set) Hold(p *record.Pod, chosen *Choice) *Held {
	held := &Held{set: h, pod: p}
	held.choice.Store(chosen)
	return held
}

// Configured returns the pod's runtime for new containers: errdefs.ErrInvalidArgument if the handler was not configured
// any more when podd was started.
func (h *Held) Configured() (oci.Runtime, error) {
	if c := h.choice.Load(); c != nil {
		return c.Runtime, nil
	}
	found, err := h.set.Current().Find(h.pod.Handler)
	if err != nil {
		return nil, err
	}
	h.choice.CompareAndSwap(nil, found)
	return h.choice.Load().Runtime, nil
}

// Runtime is Configured for containers that exist: those of a handler that is no longer configured are still
// watched, stopped and deleted.
func (h *Held) Runtime() (oci.Runtime, error) {
	rt, err := h.Configured()
	if err == nil {
		return rt, nil
	}
	if rt := h.set.retire(h.pod.Handler); rt != nil {
		return rt, nil
	}
	return nil, err
}

// Resize lets the machine of the pod, if it has one, hold these limits, those of all its containers together. They are
// without the pod's overhead: a machine has its own need in addition.
func (h *Held) Resize(ctx context.Context, r *cri.LinuxContainerResources, facts spec.Facts) error {
	rt, err := h.Runtime()
	if err != nil {
		return err
	}
	machines, ok := rt.(oci.Resizer)
	if !ok || !h.pod.OwnKernel || !h.pod.HasInfra() {
		return nil
	}
	limits, _, err := spec.Resources(r, facts)
	if err != nil {
		return err
	}
	if err := machines.Resize(ctx, h.pod.ID, limits); err != nil {
		return fmt.Errorf("resize the virtual machine: %w", err)
	}
	return nil
}

// Config returns the configuration of the pod's handler.
func (h *Held) Config() Config {
	if c := h.choice.Load(); c != nil {
		return c.Config
	}
	return h.set.Current().Settings.Handlers[h.pod.Handler]
}

// Annotations returns the annotations that the pod's handler receives with the pod's containers.
func (h *Held) Annotations() map[string]string {
	cfg := h.Config()
	if len(cfg.AllowedAnnotations) == 0 && len(cfg.DefaultAnnotations) == 0 {
		return nil
	}
	annotations := maps.Clone(cfg.DefaultAnnotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	for key, value := range h.pod.Config.GetAnnotations() {
		if cfg.allows(key) {
			annotations[key] = value
		}
	}
	return annotations
}
