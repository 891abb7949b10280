package sandbox

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/sandbox/usage"
)

// ContainerUsage measures containers by their full ids. Those that do not exist, have exited or have no process yet
// are left out. See usage.Collector.Containers.
func (e *Engine) ContainerUsage(ctx context.Context, ids []string, want usage.Want) map[string]usage.Container {
	var targets []usage.ContainerTarget
	for _, id := range ids {
		if c, err := e.Container(id); err == nil && c.ID == id {
			targets = append(targets, e.usageTarget(c))
		}
	}
	return e.usage.Containers(ctx, targets, want)
}

// PodUsage measures pods, and the containers in them, by their full ids. Pods that do not exist or are not ready are
// left out. See usage.Collector.Pods.
func (e *Engine) PodUsage(ctx context.Context, ids []string, want usage.Want) map[string]usage.Pod {
	containers := map[*Pod][]usage.ContainerTarget{}
	for _, c := range e.Containers() {
		containers[c.pod] = append(containers[c.pod], e.usageTarget(c))
	}
	var targets []usage.PodTarget
	for _, id := range ids {
		if p, err := e.Pod(id); err == nil && p.ID == id && p.Status().State == record.PodReady {
			targets = append(targets, e.podUsageTarget(p, containers[p]))
		}
	}
	return e.usage.Pods(ctx, targets, want)
}

// Writable returns the space that a container has written, including an exited one; nil if it is unknown.
func (e *Engine) Writable(containerID string) *image.FsUsage { return e.usage.Writable(containerID) }

// Filesystem returns the filesystem of the containers' root filesystems, and the name of its block device, "" when it
// has none.
func (e *Engine) Filesystem() (fs image.Filesystem, device string) { return e.usage.Filesystem() }

func newCollector(cfg Config, deps Deps) *usage.Collector {
	return usage.NewCollector(
		usage.Config{Interval: cfg.StatsInterval, Cgroups: deps.Cgroups, Disk: deps.Disk, Log: deps.Log},
	)
}

// usageTargets returns all that is measured in the background.
func (e *Engine) usageTargets() (containers []usage.ContainerTarget, pods []usage.PodTarget) {
	for _, c := range e.store.containers.List(nil) {
		containers = append(containers, e.usageTarget(c))
	}
	for _, p := range e.store.pods.List(nil) {
		if p.Status().State == record.PodReady {
			pods = append(pods, e.podUsageTarget(p, nil))
		}
	}
	return containers, pods
}

func (e *Engine) usageTarget(c *Container) usage.ContainerTarget {
	t := usage.ContainerTarget{ID: c.ID, Created: c.CreatedAt, PID: c.pid, OwnKernel: c.pod.OwnKernel}
	if t.OwnKernel {
		t.Meter = meterOf(e, c)
	}
	return t
}

// pid returns the first process, 0 unless the container is created or running.
func (c *Container) pid() int {
	if s := c.Status(); s.State == record.ContainerCreated || s.State == record.ContainerRunning {
		return s.Process.Pid
	}
	return 0
}

func (e *Engine) podUsageTarget(p *Pod, containers []usage.ContainerTarget) usage.PodTarget {
	return usage.PodTarget{
		ID: p.ID, Created: p.CreatedAt, Ready: func() bool { return p.Status().State == record.PodReady },
		InfraPID: p.Status().Infra.Pid, Netns: p.Netns, OwnKernel: p.OwnKernel, Containers: containers,
		Cgroup:      e.podCgroup(p),
		CheckCgroup: func(g usage.Cgroup) error { return e.checkOwnCgroup(p, g) },
	}
}

// meterOf returns the handler of c as a Meter, nil if it is not one.
func meterOf(e *Engine, c *Container) usage.Meter {
	rt, err := c.pod.handler.Configured()
	if err != nil {
		return nil
	}
	m, ok := rt.(usage.Meter)
	if !ok {
		return nil
	}
	return startedMeter{m, e, c}
}

// startedMeter calls the runtime only for a running container: runtimes differ in their answers before the start,
// and an error other than ErrNotFound would delay the first measurement after it.
type startedMeter struct {
	usage.Meter
	engine    *Engine
	container *Container
}

// Usage returns errdefs.ErrNotFound unless the container is running, with all others that were restored with it.
func (m startedMeter) Usage(ctx context.Context, id string) (cgroups.Usage, error) {
	if s := m.container.Status().State; s != record.ContainerRunning {
		return cgroups.Usage{}, fmt.Errorf("container %s is %s: %w", id, s, errdefs.ErrNotFound)
	}
	if err := checkRestored(m.engine, m.container.pod); err != nil {
		return cgroups.Usage{}, fmt.Errorf("container %s: %w: %w", id, err, errdefs.ErrNotFound)
	}
	return m.Meter.Usage(ctx, id)
}
