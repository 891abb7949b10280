package sandbox

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/handler"
	"github.com/podd-project/podd/sandbox/layout"
	"github.com/podd-project/podd/sandbox/lifetime"
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
	key := &e.snapshotKey
	if e.cfg.Load().RestoreForeign {
		key = nil
	}
	source, err := snapshot.Open(r.Path, key)
	if err != nil {
		return nil, err
	}
	if source.Runtime != features.Version || source.Arch != runtime.GOARCH {
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
			return nil, fmt.Errorf("%w: the image of container %s was replaced meanwhile", errdefs.ErrAborted, c.ID)
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
	err := lifetime.Undo(ctx, e.cfg.Load().UndoTimeout, func(ctx context.Context) error { return e.RemovePod(ctx, p.ID) })
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

// image returns the directory that oci.CreateRequest.Image names for a container of p, "" if it is not restored.
func (p *Pod) image(paths layout.Layout, restored bool) string {
	if !restored {
		return ""
	}
	return paths.Images(p.ID)
}

// releaseImages removes the copies of the images once no restored container of the pod waits to be started.
func releaseImages(e *Engine, started *Container) {
	if !started.Restored {
		return
	}
	for _, c := range e.store.containersOf(started.pod) {
		if s := c.Status().State; c.Restored && (s == record.ContainerCreating || s == record.ContainerCreated) {
			return
		}
	}
	if err := os.RemoveAll(e.paths.Images(started.pod.ID)); err != nil {
		started.log().WithError(err).Warn("failed to remove the images of the checkpoint, removal of the pod will try again")
	}
}
