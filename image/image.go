// Package image pulls, stores and mounts container images: containers/image transfers them, containers/storage stores
// them, and a container's root filesystem is an overlay named by the container's id.
//
// It owns the storage directory and nothing else, and does not know about pods. The engine calls it for root
// filesystems, the CRI server for everything else.
//
// A pull goes through two processes. Here, in the daemon: Store.Pull joins the callers (flight.go), fetch reads the
// registry's configuration, present asks the registry whether the image is in the store, runWorker starts podd again
// with a worker.Job. There, in a process that has restricted itself: package worker copies the image into storage. Here
// again: worker.Run reads the reports, and register checks and names the image, and publishes the index.
//
// Store is in the daemon only. It is the index of images, and decides; the packages below do the work and know no
// Store: rootfs mounts, integrity finds and replaces corrupt layers, lazy asks an additional layer store, registry has
// names, credentials and policies.
package image

import (
	"fmt"
	"strings"
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/image/registry"
	"github.com/podd-project/podd/image/rootfs"
)

// Image is one image in the store. It is immutable.
type Image struct {
	// ID is the image id: the sha256 hex of its config blob, without a prefix.
	ID string
	// Tags are its name:tag references, Digests its name@sha256:... references, both fully qualified and sorted.
	Tags, Digests []string
	// Size is the uncompressed size of the layers in bytes.
	Size uint64
	// Config is the image's OCI config (entrypoint, user, env, volumes, stop signal, labels...).
	Config v1.ImageConfig
	// Annotations are those of the manifest.
	Annotations map[string]string
	// Pinned images must not be garbage-collected by the kubelet.
	Pinned  bool
	Created time.Time
}

// CheckpointKey returns an annotation by which the image was made of a checkpoint of a container, "" if it was not:
// those of checkpointctl and CRI-O.
func (i *Image) CheckpointKey() string {
	for key := range i.Annotations {
		if strings.HasPrefix(key, "org.criu.checkpoint.") ||
			strings.HasPrefix(key, "io.kubernetes.cri-o.annotations.checkpoint.") {
			return key
		}
	}
	return ""
}

// Config has the operator's keys of images. Reconfigure can replace them.
type Config = registry.Config

// DefaultConfig returns the default values.
func DefaultConfig() Config { return registry.DefaultConfig() }

// Node has the facts of the node that do not change while podd runs.
type Node struct {
	// Root holds images, and the root filesystems of containers, across reboots. No other program may use it. Its
	// parents must be searchable by everyone (o+x) for user namespaces to work.
	Root string
	// RunRoot holds the store's locks; it is emptied by a reboot.
	RunRoot string
	// BootID is the kernel's boot id. If it differs from the last one, and the store was not closed properly, images
	// are verified.
	BootID string
}

// Validate returns an error if no filesystem can be mounted below Root.
func (n Node) Validate() error {
	if strings.ContainsAny(n.Root, ":,\\\n") {
		return fmt.Errorf("%q contains a character that is special in overlay mount options (: , \\ or a newline)", n.Root)
	}
	return nil
}

// Auth is CRI's AuthConfig.
type Auth = registry.Auth

// Kinds of failed pulls that the kubelet distinguishes.
var (
	ErrRegistryUnavailable = registry.ErrRegistryUnavailable
	ErrSignatureInvalid    = registry.ErrSignatureInvalid
)

// PullRequest names the image to fetch.
type PullRequest struct {
	// Ref is a name, a name:tag, a name@digest, or both.
	Ref string
	// Auth may be nil: then the node's auth files and anonymous access are used.
	Auth *Auth
	// Annotations are CRI's ImageSpec.annotations. Those with a key in Config.VariantAnnotations select the image of a
	// list that has the same values. An image that is in the store under the name already is not checked for them.
	Annotations map[string]string
	// Namespace is the pod's namespace, "" if it is not known: it may have its own signature policy and credentials.
	Namespace string
	// files are the signature policy and the credentials of the namespace, set by Pull.
	files string
}

// RootfsRequest describes a container's root filesystem.
type RootfsRequest struct {
	ContainerID string
	ImageID     string
	// MountLabel is the SELinux label of the mount, empty for none.
	MountLabel string
	// UIDs and GIDs are the pod's user namespace mappings; empty for none.
	UIDs, GIDs []specs.LinuxIDMapping
}

// VolumeRequest describes an image mounted read-only as a volume of a container (KEP-4639).
type VolumeRequest struct {
	ContainerID string
	// Index distinguishes the image volumes of one container.
	Index      int
	ImageID    string
	MountLabel string
	UIDs, GIDs []specs.LinuxIDMapping
}

// FsUsage is the space used by the store.
type FsUsage = rootfs.Usage

// Filesystem is the filesystem that holds the store.
type Filesystem = rootfs.Filesystem
