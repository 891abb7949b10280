// Package image pulls, stores and mounts container images: containers/image moves them, containers/storage
// keeps them, and a container's root filesystem is an overlay named by the container's id.
//
// It owns the storage directory and nothing else; it knows nothing of pods. The engine asks it for root
// filesystems, the CRI server for everything else.
package image

import (
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Image is one image in the store. A published value: never changed after it was returned.
type Image struct {
	// ID is the image id: the sha256 hex of its config blob, without a prefix.
	ID string
	// Tags are its name:tag references, Digests its name@sha256:... references, both fully qualified and sorted.
	Tags, Digests []string
	// Size in bytes, layers uncompressed.
	Size uint64
	// Config is the image's OCI config (entrypoint, user, env, volumes, stop signal, labels...).
	Config v1.ImageConfig
	// Annotations are those of the manifest.
	Annotations map[string]string
	// Pinned images are not for the kubelet's garbage collection.
	Pinned  bool
	Created time.Time
}

// Auth is what CRI's AuthConfig carries. It prints as "[credentials]", but must not be logged all the same.
type Auth struct {
	Username, Password string
	Auth               string // base64 of username:password
	ServerAddress      string // when set, the credentials go to this registry only
	IdentityToken      string
	RegistryToken      string
}

// PullRequest names the image to fetch.
type PullRequest struct {
	// Ref is a name, a name:tag, a name@digest, or both.
	Ref string
	// Auth may be nil: then the node's auth files and anonymous access are used.
	Auth *Auth
	// Annotations are CRI's ImageSpec.annotations. Those that Config.VariantAnnotations names choose the image of a list
	// that has the same ones there. An image that is in the store under the name already counts as any other.
	Annotations map[string]string
	// Namespace is the pod's namespace, for logs and (later) per-namespace policy.
	Namespace string
}

// RootfsRequest asks for a container's root filesystem.
type RootfsRequest struct {
	ContainerID string
	ImageID     string
	// MountLabel is the SELinux label of the mount, empty for none.
	MountLabel string
	// UIDs and GIDs are the pod's user namespace mappings; empty for none.
	UIDs, GIDs []specs.LinuxIDMapping
}

// VolumeRequest asks for an image mounted read-only as a volume of a container (KEP-4639).
type VolumeRequest struct {
	ContainerID string
	// Index tells the image volumes of one container apart.
	Index      int
	ImageID    string
	MountLabel string
	UIDs, GIDs []specs.LinuxIDMapping
}

// FsUsage is the space used by the store.
type FsUsage struct {
	Mountpoint string
	Bytes      uint64
	Inodes     uint64
	At         time.Time
}
