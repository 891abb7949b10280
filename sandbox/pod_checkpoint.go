package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/archive"
	"github.com/podd-project/podd/sandbox/budget"
	"github.com/podd-project/podd/sandbox/files"
	"github.com/podd-project/podd/sandbox/handler"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/sandbox/snapshot"
)

// CheckpointPod saves containers of a pod into the empty directory at path: with gVisor all that have not exited, with
// CRIU any. They run again when it returns, and after an error the directory is empty again.
func (e *Engine) CheckpointPod(ctx context.Context, id, path string, containers []string) error {
	p, err := e.Pod(id)
	if err != nil {
		return err
	}
	rt, err := p.handler.Runtime()
	if err != nil {
		return err
	}
	features := rt.Features()
	if err := handler.CheckCheckpoints(p.Handler, features); err != nil {
		return err
	}
	if err := e.resolver.Answers(ctx, path); err != nil { // nothing waits for a dead volume with the slots of containers
		return fmt.Errorf("output_path: %w", err)
	}
	c := podCheckpoint{e: e, p: p, ids: containers, version: features.Version}
	return e.onPod(ctx, operation.CheckpointPod, p, func(ctx context.Context) error { return c.run(ctx, rt, path) })
}

// podCheckpoint is one checkpoint of a pod.
type podCheckpoint struct {
	e       *Engine
	p       *Pod
	ids     []string // as the caller named them
	version string   // of the runtime
}

// run saves the containers, and then writes the rest, for which a volume can take any time: they wait no more.
func (k podCheckpoint) run(ctx context.Context, rt Runtime, path string) error {
	containers, err := k.selection()
	if err != nil {
		return err
	}
	out, err := snapshot.Create(path, snapshot.KindOf(k.p.OwnKernel), k.staging())
	if err != nil {
		return err
	}
	turn, err := k.hold(ctx, containers, func() error { return k.save(ctx, rt, out, containers) })
	defer turn.Release()
	if err == nil {
		operation.SetStage(ctx, "write manifest")
		err = k.commit(ctx, out, containers)
	}
	if err != nil {
		err = errors.Join(err, out.Discard())
	}
	return errors.Join(err, out.Close())
}

// staging returns where the runtime writes the images: "" for the caller's directory. Those of gVisor have any size,
// and could fill podd's own disk.
func (k podCheckpoint) staging() string {
	if k.p.OwnKernel {
		return ""
	}
	return snapshot.Staging(k.e.paths.Pods())
}

// hold calls save when it has the slots of the containers, so that none is started, updated or removed concurrently. A
// stop takes none: then the containers differ afterwards, and the checkpoint fails. So does it after a creation.
func (k podCheckpoint) hold(
	ctx context.Context, containers []*Container, save func() error,
) (turn *budget.Grant, err error) {
	operation.SetStage(ctx, "wait for other operations")
	for _, c := range containers {
		if err := c.slot.Acquire(ctx); err != nil {
			return nil, fmt.Errorf("wait for another operation on container %s: %w", c.ID, err)
		}
		defer c.slot.Release()
	}
	if turn, err = k.e.deps.Budgets.Checkpoints.Wait(ctx, k.p.ID, 1); err != nil {
		return nil, err
	}
	if err := k.unchanged(containers); err != nil {
		return turn, err
	}
	operation.SetStage(ctx, "save")
	if err := save(); err != nil {
		return turn, err
	}
	return turn, errors.Join(context.Cause(ctx), k.unchanged(containers))
}

// save has the runtime write the images.
func (k podCheckpoint) save(ctx context.Context, rt Runtime, out *snapshot.Writer, containers []*Container) error {
	if k.p.OwnKernel {
		return rt.(oci.Checkpointer).Checkpoint(ctx, k.p.ID, out.ImagePath())
	}
	if err := k.e.files.CheckShm(ctx, k.p.ID, k.p.Config); err != nil { // before anything is frozen
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var sources []snapshot.Source
	for _, c := range containers {
		unmark, err := c.mark().Set()
		if err != nil {
			return err
		}
		defer unmark()
		defer context.AfterFunc(c.life.Context(), func() { cancel(context.Cause(c.life.Context())) })()
		sources = append(sources, snapshot.Source{
			Name: c.Config.GetMetadata().GetName(), ID: c.ID,
			Diff: func(ctx context.Context, w io.Writer) error { return k.e.deps.Images.Diff(ctx, c.ID, w) },
		})
	}
	return out.Dump(ctx, rt.(oci.Dumper), sources, k.p.shm(k.e.files))
}

func (p *Pod) shm(in files.Files) archive.Shm {
	return archive.Shm{
		Unused: func() (bool, error) { return in.ShmUnused(p.ID, p.Config) },
		Save:   func(ctx context.Context, w io.Writer) error { return in.SaveShm(ctx, p.ID, w) },
	}
}

// selection returns the containers that were named, by id. Errors are errdefs.ErrFailedPrecondition, or
// errdefs.ErrNotFound.
func (k podCheckpoint) selection() ([]*Container, error) {
	var named []*Container
	for _, id := range k.ids {
		c, err := k.e.Container(id)
		if err != nil {
			return nil, err
		}
		if c.pod != k.p {
			return nil, fmt.Errorf("%w: container %s belongs to another pod", errdefs.ErrFailedPrecondition, c.ID)
		}
		named = append(named, c)
	}
	slices.SortFunc(named, func(a, b *Container) int { return cmp.Compare(a.ID, b.ID) })
	if len(slices.Compact(slices.Clone(named))) < len(named) {
		return nil, fmt.Errorf("%w: a container is named twice", errdefs.ErrInvalidArgument)
	}
	return named, k.unchanged(named)
}

// unchanged returns errdefs.ErrFailedPrecondition unless the pod is ready and these containers run, with gVisor those
// that have not exited.
func (k podCheckpoint) unchanged(named []*Container) error {
	if err := k.checkReady(); err != nil {
		return err
	}
	for _, c := range named {
		if err := k.checkRunning(c); err != nil {
			return err
		}
		if err := k.restorable(c); err != nil {
			return err
		}
	}
	for _, c := range k.e.store.containersOf(k.p) {
		if k.p.OwnKernel && c.Status().State != record.ContainerExited && !slices.Contains(named, c) {
			return fmt.Errorf("%w: container %s is not among those to checkpoint: gVisor saves all containers of a pod together",
				errdefs.ErrFailedPrecondition, c.ID)
		}
	}
	return k.checkShm()
}

// restorable returns errdefs.ErrFailedPrecondition for a container that could be saved, and not restored.
func (k podCheckpoint) restorable(c *Container) error {
	switch {
	case !k.p.OwnKernel:
		return snapshot.CheckCRIU(k.p.Config, c.Config)
	case c.Config.GetTty():
		return fmt.Errorf("%w: container %s has a terminal, which gVisor cannot give to a restored one",
			errdefs.ErrFailedPrecondition, c.ID)
	}
	return nil
}

// commit writes the manifest.
func (k podCheckpoint) commit(ctx context.Context, out *snapshot.Writer, containers []*Container) error {
	pod, err := snapshot.PodConfig(k.p.Config)
	if err != nil {
		return err
	}
	m := snapshot.Manifest{
		CreatedAt: time.Now(), PodID: k.p.ID, Runtime: k.version, Arch: runtime.GOARCH, Pod: pod,
	}
	for _, c := range containers {
		config, err := snapshot.ContainerConfig(c.Config)
		if err != nil {
			return err
		}
		m.Containers = append(m.Containers, snapshot.Container{
			Name: c.Config.GetMetadata().GetName(), ImageID: c.ImageID, Config: config,
		})
	}
	return out.Commit(ctx, m, &k.e.snapshotKey)
}
