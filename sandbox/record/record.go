// Package record defines the record of a pod and a container, written once, and the status, replaced whole at every
// change, with the states and the transitions between them. It owns the two files, their format and the path of every
// other file of a pod (Layout), lists records that cannot be read, and syncs a new record while its caller continues;
// it never decides when to write. The engine is the only writer; the server and the packages below the engine read the
// values and paths.
package record

import (
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/spec"
)

// Pod is the identity of a pod: written once, before anything else of the pod exists, and never changed.
// Every name on the machine follows from ID.
type Pod struct {
	ID        string
	CreatedAt time.Time
	// Config is the CRI config as the kubelet sent it; treat it as read-only.
	Config *cri.PodSandboxConfig
	// RequestedHandler is the runtime handler that the request or the routing by annotations named, "" for the default.
	RequestedHandler string
	// Handler is the name of the handler that runs the pod, even when the default changes.
	Handler string
	// Infra is true when the pod has an infra container, and OwnKernel when its containers share a sandbox with a
	// kernel that is not the host's. Both are as the handler was when the pod was created.
	Infra     bool `json:",omitempty"`
	OwnKernel bool `json:",omitempty"`
	// Netns is the pinned network namespace, "" on the host network.
	Netns string
	// Labels are the SELinux labels of the pod, zero when SELinux is off.
	Labels spec.Labels
	// Snapshot is the digest of the checkpoint that the pod was restored from, "" for other pods.
	Snapshot string `json:",omitempty"`
	// BootID is the boot in which the pod was created: after another boot none of its processes exist.
	BootID string
}

// HasInfra reports whether the pod has an infra container.
func (p Pod) HasInfra() bool {
	options := p.Config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	return p.Infra || options.GetPid() == cri.NamespaceMode_POD
}

// Container is the identity of a container: written once, before anything else of it exists.
type Container struct {
	ID, PodID string
	CreatedAt time.Time
	Config    *cri.ContainerConfig
	// ImageID is the sha256 hex of the image that Config.Image named at creation.
	ImageID string
	// Labels are the SELinux labels of the container: its own, or its pod's.
	Labels spec.Labels
	// StopSignal is the name of the signal that StopContainer sends: "SIGTERM", "SIGRTMIN+3", "SIGRTMAX-3".
	StopSignal string
	// Restored is true if the container's processes come from the checkpoint that its pod was restored from.
	Restored bool `json:",omitempty"`
}
