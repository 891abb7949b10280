package sandbox

import (
	"context"
	"io"
	"net"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/namespaces"
	"github.com/podd-project/podd/sandbox/nri"
	"github.com/podd-project/podd/sandbox/record"
)

// The engine's view of the mechanisms below it. Each is addressed by id. Every undo is idempotent and needs only the
// id, so that teardown can be repeated after a crash at any line.

// Namespaces pins and unpins a pod's namespaces.
type Namespaces interface {
	Pin(ctx context.Context, r namespaces.Request) error
	// Sysctl writes the sysctls that name a network interface, which exists only after CNI has created it.
	Sysctl(ctx context.Context, netns string, sysctls map[string]string) error
	// Unpin unmounts and removes pin files; absent ones are not an error.
	Unpin(ctx context.Context, paths ...string) error
	// Lost returns the kind of a namespace of r that is not pinned any longer, "" for none.
	Lost(r namespaces.Request) string
	// Pinned lists the pin files in dir.
	Pinned(dir string) ([]string, error)
}

// Network attaches pods to the pod network.
type Network interface {
	Setup(ctx context.Context, r network.Request) (network.Result, error)
	Teardown(ctx context.Context, podID string) error
	// Dial connects to a TCP port of the pod.
	Dial(ctx context.Context, podID string, port uint16) (net.Conn, error)
	// Abandon detaches a pod whose record is damaged (network.ErrDamaged of Teardown) or lost.
	Abandon(ctx context.Context, r network.Request) error
	// Leases returns the allocated addresses by pod, as far as the plugins expose them.
	Leases() (map[string][]string, error)
	// Attachments returns the ids of the pods that are attached, or may be.
	Attachments() ([]string, error)
	// GC detaches every pod that is not among the valid ones, and makes the plugins free the addresses that they hold
	// for others (CNI 1.1). valid is called once no pod is being attached; errdefs.ErrUnavailable when one is.
	GC(ctx context.Context, valid func() []string) error
	Ready() error
}

// Images finds images and mounts them.
type Images interface {
	// Resolve finds a stored image by any name or id; errdefs.ErrNotFound when it does not exist.
	Resolve(ctx context.Context, ref string) (*image.Image, error)
	// Allow returns an error unless pods of a namespace may use a stored image.
	Allow(ctx context.Context, imageID, namespace string) error
	Rootfs(ctx context.Context, r image.RootfsRequest) (path string, err error)
	Volume(ctx context.Context, r image.VolumeRequest) (path string, err error)
	// Diff writes the changes of the container to its root filesystem, as a layer.
	Diff(ctx context.Context, containerID string, w io.Writer) error
	// Apply makes the changes of such a layer in the container's mounted root filesystem.
	Apply(ctx context.Context, containerID string, layer io.Reader) error
	// Release unmounts and deletes the container's root filesystem and its image volumes.
	Release(ctx context.Context, containerID string) error
	// ContainersWithMounts returns the ids of the containers that have filesystems to release.
	ContainersWithMounts(ctx context.Context) ([]string, error)
}

// Plugins are asked before a pod or container is made or changed, and notified afterwards. Posts do not wait for them.
type Plugins interface {
	// RunPod, UpdatePod and Start return an error if a plugin refuses.
	RunPod(ctx context.Context, p record.PodView) error
	UpdatePod(ctx context.Context, p record.PodView, overhead, resources *cri.LinuxContainerResources) error
	Start(ctx context.Context, c record.ContainerView) error
	// Create changes the config.json of a container.
	Create(ctx context.Context, c nri.Creation) (nri.Adjustment, error)
	// Update returns the limits to set instead of r, and what to call once no lock of the container is held.
	Update(ctx context.Context, c record.ContainerView, r *cri.LinuxContainerResources) (
		limits nri.Resources, then func(context.Context, error) error, err error)
	PostPod(t lifecycle.EventType, p record.PodView)
	PostPodUpdate(p record.PodView)
	PostContainer(t lifecycle.EventType, c record.ContainerView)
	PostContainerUpdate(c record.ContainerView)
}

// Runtime is one runtime handler.
type Runtime = oci.Runtime
