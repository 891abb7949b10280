// Package usage measures what containers and pods use: cgroups, the pod's network interfaces, open files, and the
// writable layers. It owns one probe for each thing that it measures, and the background round that gives rates a
// sample to start from. It knows nothing of records or the CRI: the engine passes it targets; the server converts the
// results.
package usage

import (
	"time"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/oci/cgroups"
)

// Container is the usage of a container at one moment. Unknown values are nil. It is shared: do not change it.
type Container struct {
	Sample
	// Writable is the usage of the container's writable layer.
	Writable *image.FsUsage
}

// Pod is the usage of a pod at one moment; see Container.
type Pod struct {
	// Sample is that of the pod's own cgroup, which the kubelet creates. Path is empty when the pod does not have a
	// cgroup: then Usage is the sum of its containers', without the values that cannot be added.
	Sample
	// Network is nil on the host network.
	Network *Network
	// Containers are those that have not exited, by id.
	Containers map[string]Container
}

// Sample is the usage of a cgroup at one moment. Unknown values are nil.
type Sample struct {
	// Path is the cgroup's path in the hierarchy.
	Path  string
	Usage *cgroups.Usage
	// NanoCores is the CPU time used per second, in nanoseconds, on average since the previous sample.
	NanoCores *uint64
	// Details is set when it was asked for.
	Details *Details
}

// Details are the values that only metrics need.
type Details struct {
	cgroups.Details
	OpenFiles
}

// Want says what to measure.
type Want struct {
	// Details asks for Sample.Details, which cost more and may be as old as Config.Interval. With Fresh they are at
	// most as old as Freshness.
	Details, Fresh bool
}

// ContainerTarget is a container to measure.
type ContainerTarget struct {
	ID string
	// Created is the start of the first rate.
	Created time.Time
	// PID returns the container's first process, 0 when it has none.
	PID func() int
	// OwnKernel is true when the container runs under a kernel that is not the host's. It is measured by Meter then, and
	// not at all when Meter is nil.
	OwnKernel bool
	Meter     Meter
}

// PodTarget is a pod to measure.
type PodTarget struct {
	ID      string
	Created time.Time
	// Ready reports whether the pod is still to be measured.
	Ready func() bool
	// InfraPID is the process of the infra container, 0 for none.
	InfraPID int
	// Netns is the path of the pod's network namespace, "" on the host network.
	Netns string
	// OwnKernel is true when the infra container's cgroup holds the sandbox with all containers in it.
	OwnKernel bool
	// Cgroup is the path of the pod's cgroup, "" for none. CheckCgroup returns errdefs.ErrFailedPrecondition when that is
	// not the pod's alone.
	Cgroup      string
	CheckCgroup func(Cgroup) error
	Containers  []ContainerTarget
}

// Disk reports what containers have written. It answers from memory.
type Disk interface {
	// Writable returns false while nothing is known of the container.
	Writable(containerID string) (image.FsUsage, bool)
	// Filesystem is the filesystem of the containers' root filesystems.
	Filesystem() image.Filesystem
}

// Writable returns the usage of a container's writable layer, also after the container exited; nil if unknown.
func (c *Collector) Writable(containerID string) *image.FsUsage {
	if c.cfg.Disk == nil {
		return nil
	}
	if usage, ok := c.cfg.Disk.Writable(containerID); ok {
		return &usage
	}
	return nil
}

// Filesystem returns the filesystem of the containers' root filesystems, and the name of its block device, "" when it
// has none.
func (c *Collector) Filesystem() (fs image.Filesystem, device string) {
	if c.cfg.Disk == nil {
		return fs, ""
	}
	fs = c.cfg.Disk.Filesystem()
	if c.cfg.Cgroups != nil {
		device = c.cfg.Cgroups.Device(uint64(fs.Major), uint64(fs.Minor))
	}
	return fs, device
}
