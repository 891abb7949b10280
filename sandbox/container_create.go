package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sirupsen/logrus"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/oci/spec/host"
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
	c, made, err := e.beginContainer(ctx, p, config)
	if err != nil {
		return "", err
	}
	if made && !e.work.Go(func() {
		defer p.gate.leave()
		e.createContainer(ctx, c)
	}) {
		p.gate.leave()
		e.store.removeContainer(c)
		c.creation.finish(errClosing)
	}
	return c.ID, c.creation.await(ctx, "container")
}

// beginContainer finds the container that config means or registers a new one, for which p's gate is then held:
// a stop of the pod waits for its creation to end.
func (e *Engine) beginContainer(ctx context.Context, p *Pod, config *cri.ContainerConfig) (c *Container, made bool, err error) {
	if state := p.Status().State; state != record.PodReady || !p.gate.enter() {
		return nil, false, fmt.Errorf("%w: pod sandbox %s is %s, no container can be created in it", errdefs.ErrFailedPrecondition, p.ID, state)
	}
	defer func() {
		if !made {
			p.gate.leave()
		}
	}()
	if ids := e.unread.containersOf(p); len(ids) > 0 { // one of them may be the container that is asked for
		return nil, false, fmt.Errorf("%w: records of containers of this pod cannot be read, podd tries again: %v", errdefs.ErrUnavailable, ids)
	}
	r, err := e.newContainerRecord(ctx, p, config)
	if err != nil {
		return nil, false, err
	}
	c = e.newContainer(p, r, record.ContainerStatus{State: record.ContainerCreating, Resources: config.GetLinux().GetResources()})
	for {
		other := e.store.addContainer(c)
		if other == nil {
			return c, true, nil
		}
		err := sameContainer(other, c)
		if err != nil && other.creation.abandoned() { // see beginPod
			e.containerLog(other).Info("container was asked for again with another configuration, removing the first")
			if err = e.RemoveContainer(ctx, other.ID); err == nil || errdefs.IsNotFound(err) {
				continue
			}
		}
		c.life.end(nil)
		c.releaseLabels()
		return other, false, err
	}
}

// releaseLabels gives the container's SELinux level back, if it has one of its own.
func (c *Container) releaseLabels() {
	if c.Labels != c.pod.Labels {
		host.ReleaseLabels(c.Labels)
	}
}

func (e *Engine) newContainerRecord(ctx context.Context, p *Pod, config *cri.ContainerConfig) (record.Container, error) {
	img, err := e.Images.Resolve(ctx, config.GetImage().GetImage())
	if err != nil {
		return record.Container{}, fmt.Errorf("image %q: %w", config.GetImage().GetImage(), err)
	}
	signal, err := stopSignal(config.GetStopSignal(), img.Config.StopSignal)
	if err != nil {
		return record.Container{}, err
	}
	labels, err := containerLabels(p, config)
	if err != nil {
		return record.Container{}, err
	}
	return record.Container{
		ID: newID(), PodID: p.ID, CreatedAt: time.Now(), Config: config, ImageID: img.ID, Labels: labels, StopSignal: signal,
	}, nil
}

// containerLabels are the pod's unless the container asks for others.
func containerLabels(p *Pod, config *cri.ContainerConfig) (spec.Labels, error) {
	options := config.GetLinux().GetSecurityContext().GetSelinuxOptions()
	if options == nil {
		return p.Labels, nil
	}
	return host.Labels(options)
}

func sameContainer(have, want *Container) error {
	state := have.Status().State
	if proto.Equal(have.Config, want.Config) && (state == record.ContainerCreating || state == record.ContainerCreated) {
		return nil
	}
	m := want.Config.GetMetadata()
	return fmt.Errorf("%w: container %s (%s) is %s attempt %d of this pod already, with another configuration or started since: remove it first, or use another attempt",
		errdefs.ErrAlreadyExists, have.ID, state, m.GetName(), m.GetAttempt())
}

// createContainer makes c or leaves nothing of it.
func (e *Engine) createContainer(caller context.Context, c *Container) {
	err := e.onContainer(caller, operation.CreateContainer, c, 0, func(ctx context.Context) error {
		c.creation.follow(ctx)
		return e.tryContainer(ctx, c)
	})
	c.creation.finish(err)
	if err == nil {
		e.discardUnclaimedContainer(c)
	}
}

func (e *Engine) tryContainer(caller context.Context, c *Container) error {
	ctx, cancel := c.life.within(caller)
	defer cancel(nil)
	ctx, stop := context.WithTimeoutCause(ctx, e.cfg.CreateTimeout,
		fmt.Errorf("creation took longer than %v: %w", e.cfg.CreateTimeout, context.DeadlineExceeded))
	defer stop()

	if err := deadline(ctx, e.buildContainer(ctx, c)); err != nil {
		return e.discardContainer(caller, c, err)
	}
	c.creation.announce()
	e.postContainer(c, EventCreated) // before anybody can start it
	if !c.doomed() {
		e.watch(c)
	}
	return nil
}

// containerBuild is what the steps of a container's creation hand to each other.
type containerBuild struct {
	image   *image.Image
	rootfs  string
	volumes map[int]string // image volumes by index of the mount
	logPath string
	spec    *specs.Spec
	process oci.Process
	// doom is why the command cannot be run: then there is no process.
	doom error
}

// buildContainer is the making of a container. It cleans nothing up: teardownContainer does.
func (e *Engine) buildContainer(ctx context.Context, c *Container) error {
	rt, err := e.runtime(c.pod.Handler())
	if err != nil {
		return err
	}
	var b containerBuild
	steps := []step{
		{"record", func() error { return record.Create(c.dir, c.Container, c.Status()) }},
		{"image", func() (err error) { b.image, err = e.Images.Resolve(ctx, c.ImageID); return err }},
		{"log", func() (err error) { b.logPath, err = c.prepareLog(); return err }},
		{"rootfs", func() (err error) { b.rootfs, err = e.Images.Rootfs(ctx, e.rootfsRequest(c)); return err }},
		{"volumes", func() error { return makeVolumes(c, b) }},
		{"image volumes", func() (err error) { b.volumes, err = e.mountImageVolumes(ctx, c); return err }},
		{"spec", func() (err error) { b.spec, err = e.containerSpec(ctx, c, rt, b); return err }},
		{"create", func() error { return c.createProcess(ctx, rt, &b) }},
		{"verify", func() error { return e.verify(ctx, c, rt, b) }},
	}
	if err := runSteps(ctx, steps); err != nil {
		return err
	}
	user := b.spec.Process.User // a copy: the status lives as long as the container, and is not to keep all of the process
	return c.advance(record.ContainerCreated, func(s *record.ContainerStatus) {
		s.Process, s.User = b.process, &user
		if b.doom != nil {
			s.Reason, s.Message = reasonStartError, b.doom.Error()
		}
	})
}

// createProcess has the runtime create c's process. A command that cannot be run is the user's mistake, which
// Kubernetes shows as a container that failed to start: then c is created without a process, and the start tells.
func (c *Container) createProcess(ctx context.Context, rt Runtime, b *containerBuild) (err error) {
	b.process, err = rt.Create(ctx, c.createRequest(b))
	if errors.Is(err, oci.ErrCommand) {
		b.doom = err
		return rt.Delete(ctx, c.ID)
	}
	return err
}

// LogPath is the CRI log file, "" when the config names none.
func (c *Container) LogPath() string {
	dir, rel := c.pod.Config.GetLogDirectory(), c.Config.GetLogPath()
	if dir == "" || rel == "" {
		return ""
	}
	return filepath.Join(dir, rel)
}

// prepareLog makes the log's directories, refusing a path that leaves the pod's log directory (CVE-2025-0750).
func (c *Container) prepareLog() (string, error) {
	if c.LogPath() == "" {
		return "", nil
	}
	return host.LogPath(c.pod.Config.GetLogDirectory(), c.Config.GetLogPath())
}

func (e *Engine) rootfsRequest(c *Container) image.RootfsRequest {
	uids, gids := userMappings(c.pod.Config)
	return image.RootfsRequest{ContainerID: c.ID, ImageID: c.ImageID, MountLabel: c.Labels.Mount, UIDs: uids, GIDs: gids}
}

// makeVolumes makes the directories that the image declares as VOLUME.
func makeVolumes(c *Container, b containerBuild) error {
	uids, gids := userMappings(c.pod.Config)
	return host.MakeVolumes(b.rootfs, b.image.Config.Volumes, int(hostID(uids)), int(hostID(gids)))
}

func (c *Container) createRequest(b *containerBuild) oci.CreateRequest {
	return oci.CreateRequest{
		ID: c.ID, PodID: c.pod.ID, Spec: b.spec, LogPath: b.logPath,
		Terminal: c.Config.GetTty(), Stdin: c.Config.GetStdin(), StdinOnce: c.Config.GetStdinOnce(),
	}
}

// discardContainer undoes a failed creation and returns why it failed. When the undo fails too, the container stays,
// in an unknown state and visible, for the kubelet to remove.
func (e *Engine) discardContainer(ctx context.Context, c *Container, cause error) error {
	c.life.end(cause)
	undo := e.undo(ctx, func(ctx context.Context) error { return e.deleteContainer(ctx, c) })
	if undo == nil {
		return cause
	}
	e.containerLog(c).WithError(undo).WithField("cause", cause).Error("container could not be created, nor undone: it stays, in an unknown state")
	e.store.freeContainerName(c)
	c.creation.claimed.Store(true)
	return errors.Join(cause, fmt.Errorf("undo: %w", undo))
}

func (e *Engine) discardUnclaimedContainer(c *Container) {
	if c.creation.claimed.Load() {
		return
	}
	e.after(e.cfg.UnclaimedTimeout, func() {
		if !c.creation.abandoned() {
			return
		}
		e.containerLog(c).Warn("nobody asked for the container again, removing it")
		if err := e.RemoveContainer(e.life.ctx, c.ID); err != nil && !errdefs.IsNotFound(err) {
			e.containerLog(c).WithError(err).Error("remove unclaimed container")
		}
	})
}

func (e *Engine) containerLog(c *Container) logrus.FieldLogger {
	return e.podLog(c.pod).WithFields(logrus.Fields{"container": c.ID, "containerName": c.Config.GetMetadata().GetName()})
}
