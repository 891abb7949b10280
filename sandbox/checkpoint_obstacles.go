package sandbox

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/handler"
	"github.com/podd-project/podd/sandbox/record"
)

// CheckpointObstacles returns why CheckpointPod of all running containers of p would fail, without trying it. The
// runtime may refuse more when it has frozen the processes.
func CheckpointObstacles(ctx context.Context, e *Engine, p *Pod) (why []error) {
	add := func(err error) {
		if err != nil {
			why = append(why, err)
		}
	}
	rt, err := p.handler.Runtime()
	if err == nil {
		err = handler.CheckCheckpoints(p.Handler, rt.Features())
	}
	if err != nil {
		return []error{err}
	}
	k := podCheckpoint{e: e, p: p}
	var running []string
	for _, c := range e.store.containersOf(p) {
		if s := c.Status().State; s == record.ContainerRunning {
			running = append(running, c.ID)
			add(k.restorable(c))
		} else if k.p.OwnKernel && s != record.ContainerExited {
			add(k.checkRunning(c))
		}
	}
	if dumper, ok := rt.(oci.Dumper); ok && !p.OwnKernel {
		for _, text := range dumper.Obstacles(ctx, running) {
			add(fmt.Errorf("%w: %s", errdefs.ErrFailedPrecondition, text))
		}
		add(k.e.files.CheckShm(ctx, p.ID, p.Config))
	}
	if len(running) == 0 {
		add(fmt.Errorf("%w: no container of the pod runs", errdefs.ErrFailedPrecondition))
	}
	add(k.checkReady())
	add(k.checkShm())
	return why
}

// checkReady returns errdefs.ErrFailedPrecondition unless the pod is ready.
func (k podCheckpoint) checkReady() error {
	if s := k.p.Status().State; s != record.PodReady {
		return fmt.Errorf("%w: pod sandbox %s is %s, only one that is ready can be checkpointed",
			errdefs.ErrFailedPrecondition, k.p.ID, s)
	}
	return nil
}

// checkRunning returns errdefs.ErrFailedPrecondition unless the container runs.
func (k podCheckpoint) checkRunning(c *Container) error {
	if s := c.Status().State; s != record.ContainerRunning {
		return fmt.Errorf("%w: container %s is %s, only one that runs can be checkpointed",
			errdefs.ErrFailedPrecondition, c.ID, s)
	}
	return nil
}

// checkShm returns errdefs.ErrFailedPrecondition if /dev/shm of a pod of gVisor has files: it is a directory of the
// node, so the images do not have them, and the pod runs again before podd could save them.
func (k podCheckpoint) checkShm() error {
	if !k.p.OwnKernel {
		return nil
	}
	name, err := k.e.files.ShmFile(k.p.ID, k.p.Config)
	if name != "" {
		err = fmt.Errorf("%w: /dev/shm of the pod has files (%.100q), which a checkpoint of gVisor does not save",
			errdefs.ErrFailedPrecondition, name)
	}
	return err
}
