package sandbox

import (
	"context"
	"sync/atomic"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/sandbox/namespaces"
)

// The infra container is podd's pause process. A pod has one only when its containers share a PID namespace, because
// every other namespace is pinned by a mount, or when they share a sandbox with its own kernel, which is created for
// the first container in it. Its id is the pod's.

// startInfra starts p's infra container, if it needs one.
func (e *Engine) startInfra(ctx context.Context, p *Pod) (oci.Process, error) {
	if !p.HasInfra() {
		return oci.Process{}, nil
	}
	rt, err := p.handler.Configured()
	if err != nil {
		return oci.Process{}, err
	}
	config, err := e.infraSpec(p, rt)
	if err != nil {
		return oci.Process{}, err
	}
	request := oci.CreateRequest{ID: p.ID, PodID: p.ID, Name: infraName, Spec: config}
	if p.Snapshot != "" && p.OwnKernel {
		request.Image = e.paths.Images(p.ID)
	}
	process, err := rt.Create(ctx, request)
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
		rt, err := p.handler.Runtime()
		if err != nil {
			return
		}
		var unmonitored atomic.Bool // nothing is lost without its monitor: it has no log
		if _, exited := waitExit(p.life.Context(), rt, p.ID, p.log(), &unmonitored); exited {
			p.lose(p.life.Context(), infraDied)
		} // otherwise the pod is being stopped, or the engine closed
	})
}

// infraName is the name that tools know infra containers by.
const infraName = "POD"

// podNamespaces returns the paths of the namespaces that a pod's containers join.
func podNamespaces(pinned namespaces.Request) spec.Namespaces {
	orHost := func(path string) string {
		if path == "" {
			return spec.Host
		}
		return path
	}
	return spec.Namespaces{
		Net: orHost(pinned.Net), IPC: orHost(pinned.IPC), UTS: orHost(pinned.UTS),
		User: orHost(pinned.User), UIDs: pinned.UIDs, GIDs: pinned.GIDs,
	}
}
