package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
)

// StopPod kills the pod's containers and frees its network and namespaces. It is idempotent: what one call could not
// undo, the next one tries again. It cancels a creation in progress.
func (e *Engine) StopPod(ctx context.Context, id string) error {
	return e.onStopOf(ctx, id, operation.StopPod, e.stopPod)
}

// onStopOf runs do, which needs the pod's slot, as an operation on the pod.
func (e *Engine) onStopOf(
	ctx context.Context, id, verb string, do func(ctx context.Context, p *Pod) error,
) error {
	p, err := e.Pod(id)
	if err != nil {
		return err
	}
	if err := p.slot.Acquire(ctx); err != nil {
		return fmt.Errorf("wait for another stop of the pod sandbox: %w", err)
	}
	defer p.slot.Release()
	return e.onPod(ctx, verb, p, func(ctx context.Context) error { return do(ctx, p) })
}

// errStopping is the cause with which a stop cancels creations in the pod.
var errStopping = errors.New("the pod sandbox is being stopped")

// stopPod needs p.slot.
func (e *Engine) stopPod(ctx context.Context, p *Pod) error {
	p.life.End(errStopping)
	operation.SetStage(ctx, "wait for the creation")
	select {
	case <-p.creation.Done():
	case <-ctx.Done():
		return fmt.Errorf("wait for the creation to be undone: %w", context.Cause(ctx))
	}
	if _, err := e.Pod(p.ID); err != nil {
		return nil // its creation was undone, nothing is left
	}
	operation.SetStage(ctx, "wait for containers being created")
	if err := p.gate.Close(ctx); err != nil {
		return fmt.Errorf("wait for containers that are being created: %w", err)
	}
	if p.tornDown {
		return nil // and nothing can have been added since
	}
	repeated := p.Status().State == record.PodNotReady
	if err := p.observe(record.PodStopping, nil); err != nil {
		err = errors.Join(err, e.files.Spoil(p.ID)) // so that no later podd takes it for ready
		p.log().WithError(err).Warn("failed to write pod status")
	}
	err := undo(ctx, e, func(ctx context.Context) error {
		return e.teardownPod(ctx, p)
	})
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	p.tornDown = err == nil
	if werr := p.observe(record.PodNotReady, func(s *record.PodStatus) { s.Reason = reason }); werr != nil {
		p.log().WithError(werr).Warn("failed to write pod status")
	}
	if !repeated {
		p.post(lifecycle.Stopped)
	}
	return err
}

// teardownPod is the only undo of buildPod. It needs only the record, may be repeated, and continues after a failed
// step with the steps that do not depend on it.
func (e *Engine) teardownPod(ctx context.Context, p *Pod) error {
	e.usage.DropPod(p.ID)
	operation.SetStage(ctx, "stop containers")
	containers := errors.Join(e.stopContainers(ctx, p), e.freeUnread(ctx, p))
	operation.SetStage(ctx, "delete infra container")
	infra := e.deleteInfra(ctx, p)
	operation.SetStage(ctx, "unmount files")
	files := e.files.Unmount(ctx, p.ID)
	net := e.detach(ctx, p)
	images := os.RemoveAll(e.paths.Images(p.ID))
	if err := errors.Join(containers, infra, files, net, images); err != nil {
		return err
	}
	operation.SetStage(ctx, "remove files")
	return e.files.Remove(p.ID)
}

// detach frees the pod's addresses, then its namespaces. The network namespace is kept until CNI has detached it: a
// plugin that finds it can clean up more.
func (e *Engine) detach(ctx context.Context, p *Pod) error {
	operation.SetStage(ctx, "detach from network")
	err := e.deps.Network.Teardown(ctx, p.ID)
	if errors.Is(err, network.ErrDamaged) {
		err = e.abandon(ctx, p, err)
	}
	if err != nil {
		return fmt.Errorf("tear down network: %w", err)
	}
	pins := e.paths.Pins(p.ID)
	paths := []string{pins.IPC, pins.UTS, pins.User}
	if p.Netns != "" {
		paths = append(paths, p.Netns)
	}
	operation.SetStage(ctx, "unpin namespaces")
	if err := e.deps.Namespaces.Unpin(ctx, paths...); err != nil {
		return fmt.Errorf("unpin namespaces: %w", err)
	}
	return nil
}

// abandon detaches p by its id because the network's own record of it is damaged.
func (e *Engine) abandon(ctx context.Context, p *Pod, cause error) error {
	if log := p.log().WithError(cause); p.BootID != e.node.BootID {
		log.Warn("record of the network is damaged, perhaps since the machine went down, detaching the pod by its id")
	} else {
		log.Error("record of the network is damaged, detaching the pod by its id")
	}
	request, err := e.networkRequest(p)
	if err != nil {
		return errors.Join(cause, err)
	}
	return e.deps.Network.Abandon(ctx, request)
}

// freeUnread deletes the containers of p whose records cannot be read, by their ids.
func (e *Engine) freeUnread(ctx context.Context, p *Pod) error {
	var errs []error
	for _, id := range e.recovery.unread.ContainersOf(p.ID) {
		err := e.deleteProcess(ctx, p, id, oci.Process{})
		if err == nil {
			err = e.deps.Images.Release(ctx, id)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("free container %s, whose record cannot be read: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

func (e *Engine) deleteInfra(ctx context.Context, p *Pod) error {
	if !p.HasInfra() {
		return nil
	}
	if err := e.deleteProcess(ctx, p, p.ID, p.Status().Infra); err != nil {
		return fmt.Errorf("delete infra container: %w", err)
	}
	return nil
}
