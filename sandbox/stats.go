package sandbox

import (
	"context"
	"time"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/sandbox/record"
)

// ContainerUsage is what a container used at one moment. What is not known is nil. It is shared: do not change it.
type ContainerUsage struct {
	CgroupUsage
	// Writable is what the container has written to its root filesystem.
	Writable *image.FsUsage
}

// CgroupUsage is what a control group used at one moment. What is not known is nil.
type CgroupUsage struct {
	// Path is the group's path in the hierarchy.
	Path  string
	Usage *cgroups.Usage
	// NanoCores is the CPU time used per second, in nanoseconds, on average since the sample before: of this moment
	// and not since the container was started.
	NanoCores *uint64
	// Details is there when it was asked for.
	Details *UsageDetails
}

// UsageDetails is what only metrics tell.
type UsageDetails struct {
	cgroups.Details
	OpenFiles
}

// PodUsage is what a pod used at one moment; see ContainerUsage.
type PodUsage struct {
	// CgroupUsage is that of the pod's own control group, which the kubelet makes. Path is empty when the pod has
	// none of its own: then Usage is the sum of its containers', as far as figures can be added up.
	CgroupUsage
	// Network is nil on the node's network.
	Network *NetworkUsage
	// Containers are those that have not exited, by id.
	Containers map[string]ContainerUsage
}

// Disk tells what containers have written. It answers from memory.
type Disk interface {
	// Writable is false while nothing is known of the container.
	Writable(containerID string) (image.FsUsage, bool)
	// Filesystem is what the containers' root filesystems are kept on.
	Filesystem() image.Filesystem
}

// WantUsage says what to measure.
type WantUsage struct {
	// Details asks for CgroupUsage.Details, which cost more and may be as old as Config.StatsInterval.
	Details bool
}

// freshness is how old a sample may be when somebody asks for it: those who ask more often get the same again.
const freshness = time.Second

// ContainerUsage measures containers by their full ids. Those that are not there, have exited or have not got a
// process yet are left out. It waits for one that cannot be measured for a moment only, and then returns what was
// known of it.
func (e *Engine) ContainerUsage(ctx context.Context, ids []string, want WantUsage) map[string]ContainerUsage {
	var cs []*Container
	for _, id := range ids {
		if c, err := e.Container(id); err == nil && c.ID == id {
			cs = append(cs, c)
		}
	}
	return e.measureContainers(ctx, cs, want)
}

func (e *Engine) measureContainers(ctx context.Context, cs []*Container, want WantUsage) map[string]ContainerUsage {
	out := make(map[string]ContainerUsage, len(cs))
	probes := make([]*probe[CgroupUsage], len(cs))
	var all []measurable
	for i, c := range cs {
		if probes[i] = e.stats.container(c); probes[i] != nil {
			all = append(all, probes[i])
		}
	}
	e.stats.refresh(ctx, all, want)
	for i, c := range cs {
		if usage := probes[i].value(); usage != nil {
			out[c.ID] = ContainerUsage{CgroupUsage: *usage, Writable: e.Writable(c.ID)}
		}
	}
	return out
}

// Writable is what a container has written, also when it has exited; nil when that is not known.
func (e *Engine) Writable(containerID string) *image.FsUsage {
	if e.Disk == nil {
		return nil
	}
	if usage, ok := e.Disk.Writable(containerID); ok {
		return &usage
	}
	return nil
}

// Filesystem is what the containers' root filesystems are kept on, and the name of its block device, "" when it has
// none.
func (e *Engine) Filesystem() (fs image.Filesystem, device string) {
	if e.Disk == nil {
		return fs, ""
	}
	fs = e.Disk.Filesystem()
	if e.Cgroups != nil {
		device = e.Cgroups.Device(uint64(fs.Major), uint64(fs.Minor))
	}
	return fs, device
}

// PodUsage measures pods, and the containers in them, by their full ids. Pods that are not there or not ready are
// left out. See ContainerUsage.
func (e *Engine) PodUsage(ctx context.Context, ids []string, want WantUsage) map[string]PodUsage {
	containers := map[*Pod][]*Container{}
	for _, c := range e.Containers() {
		containers[c.pod] = append(containers[c.pod], c)
	}
	var pods []podProbes
	var all []measurable
	for _, id := range ids {
		if p, err := e.Pod(id); err == nil && p.ID == id && p.Status().State == record.PodReady {
			probes := e.podProbes(p, containers[p])
			pods = append(pods, probes)
			all = probes.appendTo(all)
		}
	}
	e.stats.refresh(ctx, all, want)
	out := make(map[string]PodUsage, len(pods))
	for _, p := range pods {
		out[p.pod.ID] = p.usage(e)
	}
	return out
}
