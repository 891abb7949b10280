package sandbox

import (
	"context"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/sandbox/record"
)

// The infra container is podd's own pause process. A pod has one only when its containers share a PID namespace,
// for every other namespace is pinned by a mount, or when they share a sandbox with a kernel of its own, which is made
// for the first container in it. Its id is the pod's.

// startInfra starts p's infra container, if it needs one.
func (e *Engine) startInfra(ctx context.Context, p *Pod) (oci.Process, error) {
	if !p.HasInfra() {
		return oci.Process{}, nil
	}
	rt, err := e.runtime(p.Handler())
	if err != nil {
		return oci.Process{}, err
	}
	config, err := e.infraSpec(p, rt)
	if err != nil {
		return oci.Process{}, err
	}
	process, err := rt.Create(ctx, oci.CreateRequest{ID: p.ID, PodID: p.ID, Spec: config})
	if err != nil {
		return oci.Process{}, err
	}
	return process, rt.Start(ctx, p.ID)
}

// watchInfra marks the pod not ready when its infra container ends while the pod is ready.
func (e *Engine) watchInfra(p *Pod) {
	if p.Status().Infra.Pid == 0 {
		return
	}
	e.work.Go(func() {
		rt, err := e.runtimeOf(p)
		if err != nil {
			return
		}
		if _, ended := e.waitForEnd(p.life.ctx, rt, p.ID); !ended || p.Status().State != record.PodReady {
			return // the pod is being stopped, or the engine closed
		}
		e.podLog(p).Warn("infra container died, the pod sandbox is not ready any more")
		if err := p.observe(record.PodNotReady, func(s *record.PodStatus) { s.Reason = "infra container died" }); err != nil {
			e.podLog(p).WithError(err).Error("write status")
		}
		e.postPod(p, EventStopped)
	})
}

// podNamespaces says where p's containers find their namespaces.
func (e *Engine) podNamespaces(p *Pod) spec.Namespaces {
	request := e.pinRequest(p)
	orHost := func(path string) string {
		if path == "" {
			return spec.Host
		}
		return path
	}
	return spec.Namespaces{
		Net: orHost(request.Net), IPC: orHost(request.IPC), UTS: orHost(request.UTS),
		User: orHost(request.User), UIDs: request.UIDs, GIDs: request.GIDs,
	}
}
