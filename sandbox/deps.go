package sandbox

import (
	"context"
	"net"
	"syscall"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/namespaces"
)

// The engine's view of the mechanisms below it. Each is addressed by id; everything on the way down is
// idempotent and needs nothing but the id, so that teardown can be repeated after a crash at any line.

// Namespaces pins and unpins a pod's namespaces.
type Namespaces interface {
	Pin(ctx context.Context, r namespaces.Request) error
	// Sysctl writes those sysctls that name a network interface, which exists once CNI has made it.
	Sysctl(ctx context.Context, netns string, sysctls map[string]string) error
	// Unpin unmounts and removes pin files; absent ones are not an error.
	Unpin(ctx context.Context, paths ...string) error
	// Pinned lists the pin files in dir.
	Pinned(dir string) ([]string, error)
}

// Network attaches pods to the pod network.
type Network interface {
	Setup(ctx context.Context, r network.Request) (network.Result, error)
	Teardown(ctx context.Context, podID string) error
	// Dial connects to a TCP port at the pod's localhost.
	Dial(ctx context.Context, podID string, port uint16) (net.Conn, error)
	// Abandon detaches a pod whose record is damaged (network.ErrDamaged of Teardown) or lost.
	Abandon(ctx context.Context, r network.Request) error
	// Leases are the addresses that are given away, as far as that can be told, by pod.
	Leases() (map[string][]string, error)
	// Attachments names the pods that are attached, or may be.
	Attachments() ([]string, error)
	// GC detaches every pod that is not among the living, and has the plugins drop what they hold for others (CNI 1.1).
	// The living are asked for once no pod is being attached. errdefs.ErrUnavailable when one is.
	GC(ctx context.Context, living func() []string) error
	Ready() error
}

// Images finds images and mounts them.
type Images interface {
	// Resolve finds a stored image by any name or id; errdefs.ErrNotFound when it is not there.
	Resolve(ctx context.Context, ref string) (*image.Image, error)
	Rootfs(ctx context.Context, r image.RootfsRequest) (path string, err error)
	Volume(ctx context.Context, r image.VolumeRequest) (path string, err error)
	// Release unmounts and deletes the container's root filesystem and its image volumes.
	Release(ctx context.Context, containerID string) error
	// ContainersWithMounts returns the ids of the containers that have filesystems to release.
	ContainersWithMounts(ctx context.Context) ([]string, error)
}

// Runtime is one handler: an OCI runtime and its monitor.
type Runtime interface {
	// Ready says why the handler cannot be used, or nil.
	Ready() error
	Features() oci.Features
	Create(ctx context.Context, r oci.CreateRequest) (oci.Process, error)
	Start(ctx context.Context, id string) error
	// Signal sends to the container's first process; a container that is gone is no error.
	Signal(ctx context.Context, id string, sig syscall.Signal) error
	// Delete kills what is left, and removes the runtime's state, the monitor and the bundle.
	Delete(ctx context.Context, id string) error
	State(ctx context.Context, id string) (oci.State, error)
	// Wait returns when the container has ended and its output is written.
	Wait(ctx context.Context, id string) (oci.Exit, error)
	ExecSync(ctx context.Context, r oci.ExecRequest) (oci.ExecResult, error)
	// Exec and Attach connect a client to a command in the container, or to its first process, until that or ctx ends.
	Exec(ctx context.Context, id string, p *specs.Process, s oci.Streams) (int32, error)
	Attach(ctx context.Context, id string, s oci.Streams) error
	Update(ctx context.Context, id string, r *specs.LinuxResources) error
	// ReopenLog makes the monitor reopen the log file, after the kubelet moved it away.
	ReopenLog(ctx context.Context, id string) error
}

// Finder is a Runtime that can find containers, or parts of them, whose records are lost.
type Finder interface {
	// Found lists their ids, and those of all others.
	List(ctx context.Context) ([]string, error)
	// Reap is Delete, and ends what Delete does not look for.
	Destroy(ctx context.Context, id string) error
}
