package sandbox

import (
	"cmp"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/spec"
)

// PodRecord is what a pod is: written once, before anything else of the pod exists, and never changed.
// Every name on the machine follows from ID.
type PodRecord struct {
	ID        string
	CreatedAt time.Time
	// Config is the CRI config as the kubelet sent it; treat it as read-only.
	Config *cri.PodSandboxConfig
	// Handler is the runtime handler asked for, or chosen in the name of the pod's annotations; "" for the default one.
	Handler string
	// Runtime is the handler that runs the pod, whatever the default one will be later; "" in records of an older podd.
	Runtime string `json:",omitempty"`
	// Infra is true when the pod has an infra container, and OwnKernel when its containers share a sandbox with a
	// kernel that is not the host's: as the handler was when the pod was made.
	Infra     bool `json:",omitempty"`
	OwnKernel bool `json:",omitempty"`
	// Netns is the pinned network namespace, "" on the host network.
	Netns string
	// Labels are the SELinux labels of the pod, zero when SELinux is off.
	Labels spec.Labels
	// BootID is the boot in which the pod was made: after another boot none of its processes exist.
	BootID string
}

// hasInfra is true when the pod has an infra container.
func (r PodRecord) hasInfra() bool { return r.Infra || sharesPID(r.Config) }

// runtime names the handler that runs the pod.
func (r PodRecord) runtime() string { return cmp.Or(r.Runtime, r.Handler) }

// ContainerRecord is what a container is: written once, before anything else of it exists.
type ContainerRecord struct {
	ID, PodID string
	CreatedAt time.Time
	Config    *cri.ContainerConfig
	// ImageID is the sha256 hex of the image that Config.Image named at creation.
	ImageID string
	// Labels are the SELinux labels of the container: its own, or its pod's.
	Labels spec.Labels
	// StopSignal is the signal StopContainer sends, a CRI Signal name without its prefix, e.g. "SIGTERM".
	StopSignal string
}

// PodState is a pod's place in its life.
type PodState string

// The states of a pod and the only ways between them (see transitions in state.go).
const (
	PodCreating PodState = "creating"
	PodReady    PodState = "ready"
	PodStopping PodState = "stopping"
	PodNotReady PodState = "notready"
)

// PodStatus is the changing part of a pod: a value, replaced whole, on disk as in memory.
type PodStatus struct {
	State PodState `json:"state"`
	// IPs are the pod's addresses, the primary one first; none on the host network.
	IPs []string `json:"ips,omitempty"`
	// Infra is the process of the infra container, for pods that have one.
	Infra oci.Process `json:"infra,omitzero"`
	// Reason says why the pod is not ready, for people.
	Reason string `json:"reason,omitempty"`
}

// ContainerState is a container's place in its life.
type ContainerState string

// The states of a container and the only ways between them (see transitions in state.go).
const (
	ContainerCreating ContainerState = "creating"
	ContainerCreated  ContainerState = "created"
	ContainerRunning  ContainerState = "running"
	ContainerExited   ContainerState = "exited"
)

// ContainerStatus is the changing part of a container: a value, replaced whole.
type ContainerStatus struct {
	State ContainerState `json:"state"`
	// Process is the container's first process.
	Process    oci.Process `json:"process,omitzero"`
	StartedAt  time.Time   `json:"startedAt,omitzero"`
	FinishedAt time.Time   `json:"finishedAt,omitzero"`
	ExitCode   int32       `json:"exitCode,omitempty"`
	// Reason is Completed, Error, OOMKilled, StartError or Unknown once the container has exited.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Resources are those of the config with later updates applied.
	Resources *cri.LinuxContainerResources `json:"-"`
	// User is whom the process was started as.
	User *specs.User `json:"user,omitempty"`
}
