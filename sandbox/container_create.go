package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/logfile"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox/convert"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/nri"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
)

// CreateContainer creates a container in a ready pod and returns its id. Retries by name join and find it, as with
// RunPod.
func (e *Engine) CreateContainer(ctx context.Context, podID string, config *cri.ContainerConfig) (string, error) {
	p, err := e.Pod(podID)
	if err != nil {
		return "", err
	}
	if err := e.handlers.CheckPrivileged(p.Pod, config); err != nil {
		return "", err
	}
	c, err := e.startContainerCreation(ctx, p, containerRequest{config: config})
	if err != nil {
		return "", err
	}
	return c.ID, c.creation.Await(ctx, "container")
}

// containerRequest is a container to create, restored from the checkpoint of its pod or not.
type containerRequest struct {
	config   *cri.ContainerConfig
	restored bool
}

// startContainerCreation finds the container that r requests or starts to create it. The creation holds p's gate: a
// stop of the pod waits for its end.
func (e *Engine) startContainerCreation(ctx context.Context, p *Pod, r containerRequest) (_ *Container, err error) {
	if s := p.Status(); s.State != record.PodReady || !p.gate.Enter() {
		return nil, fmt.Errorf("%w: pod sandbox %s is %s: %s",
			errdefs.ErrFailedPrecondition, p.ID, s.State, cmp.Or(s.Reason, "it must be ready, and not being stopped"))
	}
	c, added, err := e.registerContainer(ctx, p, r)
	if !added {
		p.gate.Leave()
		return c, err
	}
	if c.release, err = charge(p.ID, c.cost(ctx, e)); err == nil {
		err = e.runContainerCreation(ctx, c)
	}
	if err != nil {
		p.gate.Leave()
		c.life.End(err)
		e.forgetContainer(c)
		c.creation.Finish(err)
	}
	return c, nil
}

func (e *Engine) runContainerCreation(ctx context.Context, c *Container) error {
	if e.deps.Prime != nil {
		e.work.Go(e.deps.Prime)
	}
	if !e.work.Go(func() {
		defer c.pod.gate.Leave()
		c.creation.Run(ctx, e.containerPlan(c))
	}) {
		return errClosing
	}
	return nil
}

// forgetContainer removes c, of which nothing is left, from the engine.
func (e *Engine) forgetContainer(c *Container) {
	c.releaseLabels()
	e.store.containers.Remove(c)
	c.release()
}

func (e *Engine) registerContainer(
	ctx context.Context, p *Pod, request containerRequest,
) (_ *Container, added bool, err error) {
	if ids := e.recovery.unread.ContainersOf(p.ID); len(ids) > 0 { // one of them may be the requested container
		return nil, false, fmt.Errorf("%w: records of containers of this pod cannot be read, podd tries again: %v",
			errdefs.ErrUnavailable, ids)
	}
	r, err := e.newContainerRecord(ctx, p, request.config)
	if err != nil {
		return nil, false, err
	}
	r.Restored = request.restored
	status := record.ContainerStatus{State: record.ContainerCreating, Resources: request.config.GetLinux().GetResources()}
	c := e.newContainer(p, r, status)
	other, added, err := lifecycle.Register(e.store.containers, c,
		func(other *Container) error { return checkSameContainer(other, c) },
		func(other *Container) error {
			other.log().Info(msgReplaced)
			return e.RemoveContainer(ctx, other.ID)
		})
	if !added {
		c.life.End(nil)
		c.releaseLabels()
	}
	return other, added, err
}

// releaseLabels frees the container's SELinux level, if it differs from the pod's.
func (c *Container) releaseLabels() {
	if c.Labels != c.pod.Labels {
		host.ReleaseLabels(c.Labels)
	}
}

func (e *Engine) newContainerRecord(
	ctx context.Context, p *Pod, config *cri.ContainerConfig,
) (record.Container, error) {
	img, err := e.deps.Images.Resolve(ctx, config.GetImage().GetImage())
	if err != nil {
		return record.Container{}, fmt.Errorf("image %q: %w", config.GetImage().GetImage(), err)
	}
	if err := e.deps.Images.Allow(ctx, img.ID, p.Config.GetMetadata().GetNamespace()); err != nil {
		return record.Container{}, err
	}
	if key := img.CheckpointKey(); key != "" {
		return record.Container{}, fmt.Errorf("%w: image %s is a checkpoint of a container (annotation %s), podd restores "+
			"whole pods only: use the image of the program", errdefs.ErrNotImplemented, img.ID, key)
	}
	signal, err := convert.StopSignal(config.GetStopSignal(), img.Config.StopSignal)
	if err != nil {
		return record.Container{}, err
	}
	labels, err := containerLabels(p, config)
	if err != nil {
		return record.Container{}, err
	}
	return record.Container{
		ID: record.NewID(), PodID: p.ID, CreatedAt: time.Now(), Config: config, ImageID: img.ID, Labels: labels,
		StopSignal: signal,
	}, nil
}

// containerLabels returns the pod's labels unless the container requests others.
func containerLabels(p *Pod, config *cri.ContainerConfig) (spec.Labels, error) {
	options := config.GetLinux().GetSecurityContext().GetSelinuxOptions()
	if options == nil {
		return p.Labels, nil
	}
	return host.Labels(options)
}

// checkSameContainer is checkSamePod for containers.
func checkSameContainer(have, want *Container) error {
	state := have.Status().State
	if proto.Equal(have.Config, want.Config) && have.Restored == want.Restored &&
		(state == record.ContainerCreating || state == record.ContainerCreated) {
		return nil
	}
	m := want.Config.GetMetadata()
	return fmt.Errorf("%w: container name %s attempt %d is taken by container %s (%s), which has another configuration "+
		"or was started: remove it, or use another attempt",
		errdefs.ErrAlreadyExists, m.GetName(), m.GetAttempt(), have.ID, state)
}

func (e *Engine) containerPlan(c *Container) lifecycle.Plan {
	return lifecycle.Plan{
		What: "container", Log: c.log(), Life: c.life,
		Timeout: e.cfg.Load().CreateTimeout + c.restoreTime(e.paths), Unclaimed: unclaimedTime,
		Work: &e.work, Daemon: e.life.Context(),
		Operation: func(ctx context.Context, do func(context.Context) error) error {
			return e.onContainer(ctx, operation.CreateContainer, c, 0, do)
		},
		Build: func(ctx context.Context) error {
			return explainLoss(ctx, e, c.pod, e.buildContainer(ctx, c))
		},
		Discard: func(ctx context.Context, cause error) error { return e.discardContainer(ctx, c, cause) },
		Created: func() {
			c.post(lifecycle.Created)
			if !c.startFails() && !c.awaitsRestore() {
				e.watch(c)
			}
		},
		Remove: func(ctx context.Context) error { return e.RemoveContainer(ctx, c.ID) },
	}
}

// containerBuild holds the results of the steps of a container's creation.
type containerBuild struct {
	image   *image.Image
	rootfs  string
	volumes map[int]string // image volumes by index of the mount
	log     logfile.Log
	spec    *specs.Spec
	// adjustment is what plugins changed of spec.
	adjustment nri.Adjustment
	process    oci.Process
	// commandErr is the reason why the command cannot be run: then there is no process.
	commandErr error
}

// buildContainer creates a container. It undoes nothing: teardownContainer does.
func (e *Engine) buildContainer(ctx context.Context, c *Container) error {
	rt, err := c.pod.handler.Configured()
	if err != nil {
		return err
	}
	var b containerBuild
	var saved *record.Sync
	defer func() { awaitSync(ctx, saved) }()
	steps := []step{
		{"record", func() (err error) { saved, err = record.Create(e.deps.Records, c.dir, c.Container, c.Status()); return }},
		{"image", func() (err error) { b.image, err = e.deps.Images.Resolve(ctx, c.ImageID); return err }},
		{"log", func() (err error) { b.log, err = c.prepareLog(); return err }},
		{"rootfs", func() (err error) { b.rootfs, err = e.deps.Images.Rootfs(ctx, c.rootfsRequest()); return err }},
		{"restored files", c.restoreRootfs(ctx, e)},
		{"volumes", func() error { return e.prepareRootfs(ctx, c, b) }},
		{"image volumes", func() (err error) { b.volumes, err = e.mountImageVolumes(ctx, c); return err }},
		{"spec", func() (err error) { b.spec, err = e.containerSpec(ctx, c, rt, b); return err }},
		{"plugins", func() (err error) { b.adjustment, err = c.adjust(ctx, e.deps, e.cfg.Load(), rt, b.spec); return err }},
		{"mount options", func() error { return e.resolver.Restrict(ctx, b.spec) }},
		{"create", func() error { return c.createProcess(ctx, rt, &b, c.image(e.paths)) }},
		{"verify", func() error { return e.verifyPIDNamespace(ctx, c, rt, b) }},
		{stageSync, func() error { return saved.Wait() }},
	}
	if err := runSteps(ctx, steps); err != nil {
		return err
	}
	user := b.spec.Process.User // a copy: the status lives as long as the container and must not keep the process alive
	return c.advance(record.ContainerCreated, func(s *record.ContainerStatus) {
		s.Process, s.User, s.Adjusted = b.process, &user, b.adjustment.Fields
		s.Resources = cmp.Or(b.adjustment.Resources, s.Resources)
		if b.commandErr != nil {
			s.Reason, s.Message = reasonStartError, b.commandErr.Error()
		}
	})
}

// createProcess makes the runtime create c's process. A command that cannot be run is a user error, which Kubernetes
// shows as a container that failed to start: then c is created without a process, and its start fails.
//
// image is what its process is restored from, if any.
func (c *Container) createProcess(ctx context.Context, rt Runtime, b *containerBuild, image string) (err error) {
	request := c.createRequest(b)
	request.Image = image
	b.process, err = rt.Create(ctx, request)
	if errors.Is(err, oci.ErrCommand) {
		b.commandErr = err
		return rt.Delete(ctx, c.ID)
	}
	return err
}

// prepareLog makes the log's directories in the pod's log directory (CVE-2025-0750).
func (c *Container) prepareLog() (logfile.Log, error) {
	if c.View().LogPath() == "" {
		return logfile.Log{}, nil
	}
	log := c.LogFile()
	return log, log.Prepare()
}

// LogFile is the log of a container that has one.
func (c *Container) LogFile() logfile.Log {
	return logfile.Log{Dir: c.pod.Status().LogDir, Name: c.Config.GetLogPath()}
}

func (c *Container) rootfsRequest() image.RootfsRequest {
	uids, gids := convert.UserMappings(c.pod.Config)
	return image.RootfsRequest{ContainerID: c.ID, ImageID: c.ImageID, MountLabel: c.Labels.Mount, UIDs: uids, GIDs: gids}
}

// prepareRootfs makes the directories for mounts, those that the image declares as VOLUME, and the working directory,
// and sets the time zone.
func (e *Engine) prepareRootfs(ctx context.Context, c *Container, b containerBuild) error {
	hostUID, hostGID := convert.HostOwner(c.pod.Config)
	uid, gid := int(hostUID), int(hostGID)
	if err := host.MakeMountPoints(b.rootfs, uid, gid); err != nil {
		return err
	}
	if err := host.MakeVolumes(ctx, b.rootfs, b.image.Config.Volumes, uid, gid); err != nil {
		return err
	}
	paths := []string{cmp.Or(c.Config.GetWorkingDir(), b.image.Config.WorkingDir) + "/x"} // it is made itself
	for _, m := range c.Config.GetMounts() {
		paths = append(paths, m.GetContainerPath())
	}
	if err := host.MakeParents(ctx, b.rootfs, paths, uid, gid); err != nil {
		return err
	}
	return host.SetTimezone(b.rootfs, e.cfg.Load().Timezone, uid, gid)
}

func (c *Container) createRequest(b *containerBuild) oci.CreateRequest {
	return oci.CreateRequest{
		ID: c.ID, PodID: c.pod.ID, Name: c.Config.GetMetadata().GetName(), Spec: b.spec, Log: b.log,
		Terminal: c.Config.GetTty(), Stdin: c.Config.GetStdin(), StdinOnce: c.Config.GetStdinOnce(),
	}
}

// discardContainer undoes a failed creation and returns its cause. If the undo fails too, the container stays, in state
// Unknown and listed, for the kubelet to remove.
func (e *Engine) discardContainer(ctx context.Context, c *Container, cause error) error {
	c.life.End(cause)
	operation.MarkFailed(ctx)
	err := undo(ctx, e, func(ctx context.Context) error {
		return e.deleteContainer(ctx, c)
	})
	if err == nil {
		return cause
	}
	c.log().WithError(err).WithField("cause", cause).
		Error("failed to create the container and to undo its creation, it stays in an unknown state")
	e.store.containers.FreeName(c)
	c.creation.Claim()
	return errors.Join(cause, fmt.Errorf("undo: %w", err))
}
