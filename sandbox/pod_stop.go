package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
)

// StopPod kills the pod's containers and gives its network and namespaces back. It is idempotent: what one call
// could not undo, the next one tries again. A pod that is still being created is not created any further.
func (e *Engine) StopPod(ctx context.Context, id string) error {
	p, err := e.Pod(id)
	if err != nil {
		return err
	}
	if err := p.op.take(ctx); err != nil {
		return fmt.Errorf("wait for another stop of the pod sandbox: %w", err)
	}
	defer p.op.release()
	return e.onPod(ctx, operation.StopPod, p, func(ctx context.Context) error { return e.stopPod(ctx, p) })
}

// errStopping is why what is being built in a pod that stops is given up.
var errStopping = errors.New("the pod sandbox is being stopped")

// stopPod needs p.op.
func (e *Engine) stopPod(ctx context.Context, p *Pod) error {
	p.life.end(errStopping)
	operation.SetStage(ctx, "wait for the creation")
	select {
	case <-p.creation.done:
	case <-ctx.Done():
		return fmt.Errorf("wait for the creation to be undone: %w", context.Cause(ctx))
	}
	if _, err := e.Pod(p.ID); err != nil {
		return nil // its creation was undone, nothing is left
	}
	operation.SetStage(ctx, "wait for containers being created")
	if err := p.gate.close(ctx); err != nil {
		return fmt.Errorf("wait for containers that are being created: %w", err)
	}
	news := p.Status().State != record.PodNotReady // a repeated stop is none
	if err := p.observe(record.PodStopping, nil); err != nil {
		e.podLog(p).WithError(err).Warn("write status")
	}
	err := e.undo(ctx, func(ctx context.Context) error { return e.teardownPod(ctx, p) })
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	if werr := p.observe(record.PodNotReady, func(s *record.PodStatus) { s.Reason = reason }); werr != nil {
		e.podLog(p).WithError(werr).Warn("write status")
	}
	if news {
		e.postPod(p, EventStopped)
	}
	return err
}

// teardownPod is the only undo of buildPod. It needs the record alone, may be repeated, and goes on after a
// failing step, but for those that the failed one still needs.
func (e *Engine) teardownPod(ctx context.Context, p *Pod) error {
	e.usage.DropPod(p.ID)
	operation.SetStage(ctx, "stop containers")
	containers := errors.Join(e.stopContainers(ctx, p), e.freeUnread(ctx, p))
	operation.SetStage(ctx, "delete infra container")
	infra := e.deleteInfra(ctx, p)
	operation.SetStage(ctx, "unmount shm")
	shm := e.shm.Unmount(ctx, e.podFile(p.ID, shmDir))
	net := e.detach(ctx, p)
	if err := errors.Join(containers, infra, shm, net); err != nil {
		return err
	}
	operation.SetStage(ctx, "remove files")
	return e.removePodRunDir(p.ID)
}

// detach gives the pod's addresses back, then its namespaces. The network namespace is kept until CNI has let go of
// it: a plugin that finds it can clean up more than one that does not.
func (e *Engine) detach(ctx context.Context, p *Pod) error {
	operation.SetStage(ctx, "detach from network")
	err := e.Network.Teardown(ctx, p.ID)
	if errors.Is(err, network.ErrDamaged) {
		err = e.abandon(ctx, p, err)
	}
	if err != nil {
		return fmt.Errorf("tear down network: %w", err)
	}
	pins := e.pins(p.ID)
	paths := []string{pins.ipc, pins.uts, pins.user}
	if p.Netns != "" {
		paths = append(paths, p.Netns)
	}
	operation.SetStage(ctx, "unpin namespaces")
	if err := e.Namespaces.Unpin(ctx, paths...); err != nil {
		return fmt.Errorf("unpin namespaces: %w", err)
	}
	return nil
}

// abandon detaches p by its id: the network's own record of it is damaged.
func (e *Engine) abandon(ctx context.Context, p *Pod, cause error) error {
	e.podLog(p).WithError(cause).Error("the network's record of the pod is damaged, detaching it by its id")
	request, err := e.networkRequest(p)
	if err != nil {
		return errors.Join(cause, err)
	}
	return e.Network.Abandon(ctx, request)
}

// freeUnread ends the containers of p whose records cannot be read: their ids are enough.
func (e *Engine) freeUnread(ctx context.Context, p *Pod) error {
	var errs []error
	for _, id := range e.unread.containersOf(p) {
		err := e.deleteProcess(ctx, p, id)
		if err == nil {
			err = e.Images.Release(ctx, id)
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
	if err := e.deleteProcess(ctx, p, p.ID); err != nil {
		return fmt.Errorf("delete infra container: %w", err)
	}
	return nil
}

func (e *Engine) podLog(p *Pod) logrus.FieldLogger {
	m := p.Config.GetMetadata()
	return e.Log.WithFields(logrus.Fields{"pod": p.ID, "name": m.GetName(), "namespace": m.GetNamespace()})
}
