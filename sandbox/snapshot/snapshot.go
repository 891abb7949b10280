// Package snapshot owns the directory that CheckpointPod writes and RestorePod reads: the images of a runtime, and a
// manifest that describes them. It starts and stops nothing and knows no pod of the node; the engine calls it.
//
//	<directory>/gvisor/{checkpoint,pages,pages_meta}.img   the sandbox's memory, root filesystems included
//	<directory>/criu/<container>/checkpoint/*              the memory of a container's processes
//	<directory>/criu/<container>/rootfs-diff.tar           its changes to its root filesystem
//	<directory>/criu/<container>/{dump.log,stats-dump}     CRIU's log and timings
//	<directory>/criu/shm.tar                               the files in /dev/shm of the pod, if there are any
//	<directory>/manifest.hmac                              the seal: HMAC-SHA256 of the manifest by the key of the node
//	<directory>/manifest.sig                               the signature, if there is one: Ed25519ctx, by a key of others
//	<directory>/manifest.json                              written last: a directory without it is not a checkpoint
//
// The directory is the caller's and its files are hostile until they are checked: every file is opened below the
// directory without following links, must be a regular file, and counts only with the size and digest of a manifest
// whose seal or signature fits. Images are copied before they are used, so that a later change of the directory has no
// effect.
package snapshot

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"
)

const (
	format       = 1
	manifestName = "manifest.json"
	sealName     = "manifest.hmac"
	// KindGVisor are images of gVisor's runsc without compression, of all containers together. KindCRIU are images of
	// CRIU, and layers of root filesystems. Their directory has the name of the kind.
	KindGVisor = "gvisor"
	KindCRIU   = "criu"
	// maxSeal and maxSignature bound the files of the seal and the signature, in bytes.
	maxSeal      = 2 * sha256.Size
	maxSignature = 2 * ed25519.SignatureSize
	// MaxManifest bounds a manifest, in bytes. It has the environments of the containers.
	MaxManifest = 16 << 20
	// maxImage bounds the sizes of images that a manifest may state, in bytes, so that their sum does not overflow.
	maxImage = 1 << 50
	// maxFiles bounds the files of KindCRIU: some for each container, a few for each of its processes.
	maxFiles = 1 << 20
)

// imageFiles are the files of KindGVisor.
func imageFiles() []string { return []string{"checkpoint.img", "pages.img", "pages_meta.img"} }

// Manifest describes a checkpoint.
type Manifest struct {
	// Format is the version of the directory's layout, Kind that of the images.
	Format int    `json:"format"`
	Kind   string `json:"kind"`
	// CreatedAt is when the images were complete.
	CreatedAt time.Time `json:"createdAt"`
	// PodID is the pod that was checkpointed.
	PodID string `json:"podID"`
	// Runtime is the version of the runtime (oci.Features.Version), Arch GOARCH: both must be equal at the restore.
	Runtime string `json:"runtime"`
	Arch    string `json:"arch"`
	// Pod is what PodConfig returned for the pod.
	Pod json.RawMessage `json:"pod"`
	// Containers are the containers of the pod, except its infra container.
	Containers []Container `json:"containers"`
	// Files are the images.
	Files []File `json:"files"`
}

// Container describes a container of a checkpoint.
type Container struct {
	// Name is the name in metadata.
	Name string `json:"name"`
	// ImageID is the sha256 hex of the image.
	ImageID string `json:"imageID"`
	// Config is what ContainerConfig returned for the container.
	Config json.RawMessage `json:"config"`
}

// File is an image of a checkpoint.
type File struct {
	// Name is relative to the directory of the images.
	Name string `json:"name"`
	// Size is in bytes.
	Size int64 `json:"size"`
	// SHA256 is the digest in hex.
	SHA256 string `json:"sha256"`
}

// check returns errdefs.ErrFailedPrecondition for a manifest that this podd cannot restore.
func (m Manifest) check() error {
	if m.Format != format || m.Kind != KindGVisor && m.Kind != KindCRIU {
		return fmt.Errorf("%w: the checkpoint has format %d and kind %.20q, this podd restores format %d of kind %q or %q",
			errdefs.ErrFailedPrecondition, m.Format, m.Kind, format, KindGVisor, KindCRIU)
	}
	if len(m.Containers) == 0 {
		return fmt.Errorf("%w: the manifest lists no container", errdefs.ErrFailedPrecondition)
	}
	var names []string
	var total int64
	for _, f := range m.Files {
		names = append(names, f.Name)
		if f.Size < 0 || f.Size > maxImage-total {
			return fmt.Errorf("%w: the manifest gives file %.100q %d bytes, want 0 to %d for all together",
				errdefs.ErrFailedPrecondition, f.Name, f.Size, int64(maxImage))
		}
		total += f.Size
	}
	slices.Sort(names)
	return m.checkNames(names)
}

// checkNames checks the sorted names of the files.
func (m Manifest) checkNames(names []string) error {
	if m.Kind == KindCRIU {
		return m.checkCRIU(names)
	}
	if !slices.Equal(names, imageFiles()) {
		return fmt.Errorf("%w: the manifest lists the images %.200q, want %q",
			errdefs.ErrFailedPrecondition, names, imageFiles())
	}
	return nil
}

// Container returns the container with this name, nil if there is none.
func (m Manifest) Container(name string) *Container {
	i := slices.IndexFunc(m.Containers, func(c Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &m.Containers[i]
}

// size returns the size of the images together, in bytes.
func (m Manifest) size() (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}
