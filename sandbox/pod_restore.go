package sandbox

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/handler"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/sandbox/snapshot"
)

// RestoreRequest is a pod to restore from a checkpoint.
type RestoreRequest struct {
	// Path is the directory of the checkpoint.
	Path string
	// Pod and Containers are the configs of the new pod, Handler its runtime handler, "" for the default.
	Pod        *cri.PodSandboxConfig
	Containers []*cri.ContainerConfig
	Handler    string
}

// RestorePod creates a pod with the containers of a checkpoint, which continue when each of them has been started. It
// returns the containers in the order of the request, and removes the pod after an error. A call with the same request
// joins one in progress; if the other one succeeds, both do.
func (e *Engine) RestorePod(ctx context.Context, r RestoreRequest) (*Pod, []*Container, error) {
	chosen, err := e.handlers.Choose(r.Pod, r.Handler)
	if err != nil {
		return nil, nil, err
	}
	rec, err := e.newPodRecord(r.Pod, chosen)
	if err != nil {
		return nil, nil, err
	}
	source, err := openSource(ctx, e, r, chosen.Runtime)
	if err != nil {
		return nil, nil, err
	}
	rec.Snapshot = source.Digest
	p, err := e.startPodCreation(ctx, rec, chosen, source)
	if err != nil {
		return nil, nil, err
	}
	p.restorers.Add(1)
	containers, err := restoreContainers(ctx, e, p, source, r.Containers)
	last := p.restorers.Add(-1) == 0
	if err != nil && last && p.creation.Abandoned() { // else another caller has the pod, from this call or an earlier one
		err = discardRestored(ctx, e, p, err)
	}
	return p, containers, err
}

// openSource reads the checkpoint and compares it with the request.
func openSource(ctx context.Context, e *Engine, r RestoreRequest, rt Runtime) (*snapshot.Snapshot, error) {
	features := rt.Features()
	if err := handler.CheckCheckpoints(r.Handler, features); err != nil {
		return nil, err
	}
	if err := e.resolver.Answers(ctx, r.Path); err != nil {
		return nil, fmt.Errorf("checkpoint_path: %w", err)
	}
	cfg := e.cfg.Load()
	source, err := snapshot.Open(r.Path, snapshot.Trust{
		Key: &e.snapshotKey, PublicKeys: cfg.CheckpointKeys, Foreign: cfg.RestoreForeign,
	})
	if err != nil {
		return nil, err
	}
	if want := snapshot.KindOf(features.OwnKernel); source.Kind != want {
		return nil, fmt.Errorf("%w: the checkpoint has images of kind %q, the handler restores %q",
			errdefs.ErrFailedPrecondition, source.Kind, want)
	}
	if features.OwnKernel && source.Runtime != features.Version || source.Arch != runtime.GOARCH {
		return nil, fmt.Errorf("%w: the checkpoint was made by %.100q on %.20q, this handler is %q on %q",
			errdefs.ErrFailedPrecondition, source.Runtime, source.Arch, features.Version, runtime.GOARCH)
	}
	if err := source.CheckPod(r.Pod); err != nil {
		return nil, err
	}
	if err := source.CheckContainers(r.Containers); err != nil {
		return nil, err
	}
	for _, config := range r.Containers {
		name, ref := config.GetMetadata().GetName(), config.GetImage().GetImage()
		img, err := e.deps.Images.Resolve(ctx, ref)
		if err != nil {
			return nil, fmt.Errorf("image %q: %w", ref, err)
		}
		if want := source.Container(name).ImageID; img.ID != want {
			return nil, fmt.Errorf("%w: container %q ran image %.64q when it was checkpointed, image %q is %s",
				errdefs.ErrFailedPrecondition, name, want, ref, img.ID)
		}
	}
	return source, nil
}

// restoreContainers waits for p and creates its containers. All ids are claimed together, at the end.
func restoreContainers(
	ctx context.Context, e *Engine, p *Pod, source *snapshot.Snapshot, configs []*cri.ContainerConfig,
) (containers []*Container, err error) {
	if err := p.creation.Settled(ctx); err != nil {
		return nil, err
	}
	for _, config := range configs {
		if err := e.handlers.CheckPrivileged(p.Pod, config); err != nil {
			return nil, err
		}
		c, err := e.startContainerCreation(ctx, p, containerRequest{config: config, restored: true})
		if err != nil {
			return nil, err
		}
		if c.ImageID != source.Container(config.GetMetadata().GetName()).ImageID { // the name was moved since openSource
			return nil, fmt.Errorf("%w: the image of container %s was replaced", errdefs.ErrAborted, c.ID)
		}
		containers = append(containers, c)
	}
	for _, c := range containers {
		if err := c.creation.Settled(ctx); err != nil {
			return nil, fmt.Errorf("create container %q: %w", c.Config.GetMetadata().GetName(), err)
		}
	}
	for _, c := range containers {
		c.creation.Claim()
	}
	p.creation.Claim()
	return containers, nil
}

// discardRestored removes a pod that could not be restored, and returns cause.
func discardRestored(ctx context.Context, e *Engine, p *Pod, cause error) error {
	err := undo(ctx, e, func(ctx context.Context) error {
		return e.RemovePod(ctx, p.ID)
	})
	if err == nil || errdefs.IsNotFound(err) {
		return cause
	}
	return fmt.Errorf("%w; undo: %w", cause, err)
}

// stageImages returns the step that copies the images of the checkpoint that p is restored from, nil if it is not. A
// restarted podd discards a pod that it was creating, so that p.source is set while p is built.
func (p *Pod) stageImages(ctx context.Context, to string) func() error {
	if p.source == nil {
		return nil
	}
	return func() error { return p.source.Stage(ctx, to) }
}

// restoreShm returns the step that makes the files in /dev/shm, nil if the checkpoint has none.
func (p *Pod) restoreShm(ctx context.Context, e *Engine) func() error {
	if p.source == nil || p.source.ShmArchive("") == "" {
		return nil
	}
	return func() error {
		archive := p.source.ShmArchive(e.paths.Images(p.ID))
		return archive.Read(func(r io.Reader, size int64) error { return e.files.RestoreShm(ctx, p.ID, r, size) })
	}
}

// stageTime is the additional time for the creation of p, compared with another pod.
func (p *Pod) stageTime() time.Duration {
	if p.source == nil {
		return 0
	}
	return p.source.RestoreTime()
}

// image returns the directory that oci.CreateRequest.Image names for c, "" if it is not restored.
func (c *Container) image(paths record.Layout) string {
	if !c.Restored {
		return ""
	}
	return snapshot.Images(paths.Images(c.pod.ID), snapshot.KindOf(c.pod.OwnKernel), c.Config.GetMetadata().GetName())
}

// restoreRootfs returns the step that makes the changes of the checkpoint in the root filesystem of c, nil if there is
// none. gVisor's images have them.
func (c *Container) restoreRootfs(ctx context.Context, e *Engine) func() error {
	if !c.Restored || c.pod.OwnKernel {
		return nil
	}
	return func() error {
		layer := snapshot.Rootfs(e.paths.Images(c.pod.ID), c.Config.GetMetadata().GetName())
		return layer.Read(func(r io.Reader, _ int64) error { return e.deps.Images.Apply(ctx, c.ID, r) })
	}
}

// restoreTime is the additional time for the creation or start of c, compared with another container.
func (c *Container) restoreTime(paths record.Layout) time.Duration {
	if !c.Restored {
		return 0
	}
	return snapshot.RestoreTime(paths.Images(c.pod.ID))
}

// awaitsRestore reports whether c has no process before CRIU restores one, when c is started.
func (c *Container) awaitsRestore() bool {
	return c.Restored && !c.pod.OwnKernel && c.Status().State == record.ContainerCreated
}

// checkRestored fails until all containers of a pod that gVisor restores have been started: they continue at once, and
// the sandbox panics at a command or a measurement before.
func checkRestored(e *Engine, p *Pod) error {
	if p.Snapshot == "" || !p.OwnKernel {
		return nil
	}
	for _, c := range e.store.containersOf(p) {
		if s := c.Status(); c.Restored && s.StartedAt.IsZero() {
			return fmt.Errorf("%w: the pod's containers are restored when all have been started, container %s is %s",
				errdefs.ErrFailedPrecondition, c.ID, s.State)
		}
	}
	return nil
}

// restoredProcess returns the process of a container that was restored.
func restoredProcess(ctx context.Context, rt Runtime, id string) (oci.Process, error) {
	s, err := rt.State(ctx, id)
	if err != nil {
		return oci.Process{}, fmt.Errorf("find the restored process: %w", err)
	}
	return s.Process, nil
}

// stopUnrestored exits a container that has no process. A start in progress was cancelled, and ends soon.
func stopUnrestored(ctx context.Context, e *Engine, c *Container) error {
	if err := c.slot.Acquire(ctx); err != nil {
		return fmt.Errorf("wait for the start of the container to end: %w", err)
	}
	defer c.slot.Release()
	if !c.awaitsRestore() {
		return e.stopContainer(ctx, c, 0)
	}
	return e.publishExit(c, oci.Exit{Code: 128 + int32(syscall.SIGKILL), At: time.Now(), Known: true})
}

// releaseImages removes the copies of the images once no restored container of the pod waits to be started: all have
// been, or have exited. c is one whose state has changed.
func releaseImages(e *Engine, c *Container) {
	if !c.Restored {
		return
	}
	for _, o := range e.store.containersOf(c.pod) {
		if s := o.Status().State; o.Restored && (s == record.ContainerCreating || s == record.ContainerCreated) {
			return
		}
	}
	if err := os.RemoveAll(e.paths.Images(c.pod.ID)); err != nil {
		c.log().WithError(err).Warn("failed to remove the images of the checkpoint, removal of the pod will try again")
	}
}
