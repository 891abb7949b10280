package sandbox

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/record"
)

// Clean-up programs unmount and delete files of pods. A pod that has lost a part that each container needs can
// never start one again: it is not ready, so that the kubelet makes another.

// lossInterval is how often ready pods are looked at.
const lossInterval = 10 * time.Second

const infraDied = "infra container died"

// watchPods marks ready pods that have lost a namespace or a file until the engine closes.
func watchPods(e *Engine) {
	for lifecycle.Sleep(e.life.Context(), lossInterval) {
		for _, p := range e.store.pods.List(nil) {
			if p.Status().State != record.PodReady {
				continue
			}
			if reason := lostPart(e, p); reason != "" {
				p.lose(p.life.Context(), reason)
			}
		}
	}
}

// lostPart returns which namespace or file of p is gone, "" for none.
func lostPart(e *Engine, p *Pod) string {
	if kind := e.deps.Namespaces.Lost(e.pinRequest(p)); kind != "" {
		return "the pod's " + kind + " namespace is gone"
	}
	if files := e.files.Missing(p.ID, p.Config); len(files) > 0 {
		return "files of the pod are gone: " + strings.Join(files, ", ")
	}
	return ""
}

// loss is lostPart that also asks for the infra container, if p has one.
func loss(ctx context.Context, e *Engine, p *Pod) string {
	if reason := lostPart(e, p); reason != "" || !p.HasInfra() {
		return reason
	}
	rt, err := p.handler.Runtime()
	if err != nil {
		return "" // the handler is no longer configured; nothing shows that the pod is dead
	}
	if state, err := rt.State(ctx, p.ID); err != nil || state.Status != oci.Stopped && state.Status != oci.Absent {
		return ""
	}
	return infraDied
}

// explainLoss returns the error of a creation in p; of one that failed because of a loss,
// errdefs.ErrFailedPrecondition.
func explainLoss(ctx context.Context, e *Engine, p *Pod, err error) error {
	if err == nil || p.life.Context().Err() != nil {
		return err
	}
	reason := loss(ctx, e, p)
	if reason == "" {
		return err
	}
	p.lose(p.life.Context(), reason)
	return fmt.Errorf("%w: %s, the pod sandbox is not ready any longer: %v", errdefs.ErrFailedPrecondition, reason, err)
}

// lose marks p not ready, unless it is not ready or is being stopped.
func (p *Pod) lose(ctx context.Context, reason string) {
	if p.slot.Acquire(ctx) != nil {
		return
	}
	defer p.slot.Release()
	state := p.Status().State
	if state == record.PodNotReady {
		return
	}
	p.log().WithField("reason", reason).Warn("pod sandbox is no longer ready")
	p.markNotReady(reason)
	if state == record.PodReady { // lists may have said so
		p.post(lifecycle.Stopped)
	}
}
