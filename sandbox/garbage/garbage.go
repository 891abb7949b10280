// Package garbage lists the resources that podd has on a machine under the ids of pods and containers, and frees those
// without a record. It needs only the id: the record is lost. It also keeps damaged records for an administrator. Which
// ids have a record is the engine's knowledge; the engine is its only caller.
package garbage

import (
	"context"
	"errors"

	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/sandbox/files"
	"github.com/podd-project/podd/sandbox/handler"
	"github.com/podd-project/podd/sandbox/record"
)

// The kinds of resources, as people read them.
const (
	Container  = "container"
	Cgroup     = "cgroup"
	Mount      = "mount"
	Rootfs     = "root filesystem"
	Attachment = "network attachment"
	Netns      = "network namespace"
	PodDir     = "pod directory"
)

// Machine has the resources of pods and containers. All fields are required.
type Machine struct {
	Paths      record.Layout
	Files      *files.Files
	Handlers   *handler.Set
	Namespaces Namespaces
	Network    Network
	Images     Images
	// Cgroups returns the cgroups that the kubelet has made for recorded pods and that no other pod is in: all
	// containers in them belong to this podd.
	Cgroups func() ([]string, error)
	// Prefixes returns the prefixes that the names of containers' cgroups have, or had before a change of the
	// configuration.
	Prefixes func() []string
}

// Namespaces finds and unpins namespaces; see sandbox.Namespaces.
type Namespaces interface {
	Unpin(ctx context.Context, paths ...string) error
	Pinned(dir string) ([]string, error)
}

// Network finds and detaches pods; see sandbox.Network.
type Network interface {
	GC(ctx context.Context, valid func() []string) error
	Teardown(ctx context.Context, podID string) error
	Abandon(ctx context.Context, r network.Request) error
	Attachments() ([]string, error)
}

// Images finds and releases filesystems; see sandbox.Images.
type Images interface {
	Release(ctx context.Context, containerID string) error
	ContainersWithMounts(ctx context.Context) ([]string, error)
}

// Kind is one kind of resource that podd leaves on a machine under the id of a pod or container.
type Kind struct {
	// What names it for people; one of the constants above.
	What string
	// List returns the ids that have such a resource, in use or not.
	List func(ctx context.Context) ([]string, error)
	// Free frees the resource of one id. It is idempotent.
	Free func(ctx context.Context, id string) error
}

// Kinds returns the kinds in the order in which they can be freed: processes, then the resources they use; addresses
// before the namespace that the plugins clean up in.
func (m *Machine) Kinds() []Kind {
	return []Kind{
		{Mount, m.mounts, m.freeMounts}, // they block the removal of the container's directories
		{Container, m.containers, m.freeContainer},
		{Cgroup, m.cgroups, m.freeCgroup},
		{Rootfs, m.Images.ContainersWithMounts, m.Images.Release},
		{Attachment, func(context.Context) ([]string, error) { return m.Network.Attachments() }, m.freeAttachment},
		{Netns, m.pinnedNetns, m.freeNetns},
		{PodDir, func(context.Context) ([]string, error) { return m.Files.Pods() }, m.freePodDir},
	}
}

func (m *Machine) freePodDir(ctx context.Context, id string) error {
	pins := m.Paths.Pins(id)
	return errors.Join(
		m.Namespaces.Unpin(ctx, pins.IPC, pins.UTS, pins.User),
		m.Files.Unmount(ctx, id),
		m.Files.Remove(id))
}
