package server

import (
	"context"
	"iter"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/sandbox/usage"
)

// Event is an event of a container or a pod sandbox, with the state of the whole pod after it.
type Event struct {
	Type lifecycle.EventType
	// ID is the id of the container or of the pod.
	ID         string
	At         time.Time
	Pod        record.PodView
	Containers []record.ContainerView
}

// Engine is the server's view of sandbox.Engine (see Adapt). Ids may be full or a unique prefix; an unknown one is
// errdefs.ErrNotFound, an ambiguous one ErrInvalidArgument. Pod, Pods, Container, Containers,
// ContainersOf, Handlers, InUse and NetworkReady return from memory, without I/O.
type Engine interface {
	RunPod(ctx context.Context, cfg *cri.PodSandboxConfig, handler string) (id string, err error)
	StopPod(ctx context.Context, id string) error
	RemovePod(ctx context.Context, id string) error
	// CheckpointContainer saves the container in a new file at location. A timeout of 0 is that of the configuration.
	CheckpointContainer(ctx context.Context, id, location string, timeout time.Duration) error
	// CheckpointPod saves the containers, which must be all that run in the pod, into the directory at path.
	CheckpointPod(ctx context.Context, id, path string, containers []string) error
	// RestorePod returns the ids of the new pod and of its containers, in the order of the request.
	RestorePod(ctx context.Context, r sandbox.RestoreRequest) (pod string, containers []string, err error)
	Pod(id string) (record.PodView, error)
	Pods() iter.Seq[record.PodView]

	CreateContainer(ctx context.Context, podID string, cfg *cri.ContainerConfig) (id string, err error)
	StartContainer(ctx context.Context, id string) error
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
	UpdateContainer(ctx context.Context, id string, r *cri.LinuxContainerResources) error
	ReopenLog(ctx context.Context, id string) error
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (oci.ExecResult, error)
	Container(id string) (record.ContainerView, error)
	Containers() iter.Seq[record.ContainerView]
	// ContainersOf returns the containers of the pod with this full id.
	ContainersOf(podID string) []record.ContainerView
	// LastOperations returns the last operation of each verb on the pod or container with this full id.
	LastOperations(id string) []operation.Operation
	// Events calls send for every event from now on, until ctx ends, send fails, or too many events are pending
	// (errdefs.ErrResourceExhausted).
	Events(ctx context.Context, send func(Event) error) error

	// ContainerUsage and PodUsage measure the containers or pods with these full ids, except those that cannot be
	// measured.
	ContainerUsage(ctx context.Context, ids []string, want usage.Want) map[string]usage.Container
	PodUsage(ctx context.Context, ids []string, want usage.Want) map[string]usage.Pod
	// Writable and Filesystem return the last measurement.
	Writable(containerID string) *image.FsUsage
	Filesystem() (fs image.Filesystem, device string)
	UpdatePod(ctx context.Context, id string, overhead, resources *cri.LinuxContainerResources) error

	Handlers() []sandbox.Handler
	NetworkReady() error
	InUse(imageID string) []string
}

// Images is the server's view of image.Store.
type Images interface {
	// List returns all images.
	List(ctx context.Context) ([]*image.Image, error)
	// Resolve finds an image by name or id: errdefs.ErrNotFound when it is not stored.
	Resolve(ctx context.Context, ref string) (*image.Image, error)
	Pull(ctx context.Context, r image.PullRequest) (*image.Image, error)
	// Remove deletes the image with all of its names.
	Remove(ctx context.Context, id string) error
	// Usage returns the space used by images and by containers' writable layers.
	Usage(ctx context.Context) (images, containers []image.FsUsage, err error)
}

// Network receives the kubelet's settings of the pod network.
type Network interface {
	SetPodCIDR(ctx context.Context, cidr string) error
}

// Streamer prepares streaming sessions and returns their URLs. Requests are valid and have full ids; id is that of the
// call.
type Streamer interface {
	Exec(id string, r *cri.ExecRequest) (url string, err error)
	Attach(id string, r *cri.AttachRequest) (url string, err error)
	PortForward(id string, r *cri.PortForwardRequest) (url string, err error)
}

// SpecReader returns a container's config.json, errdefs.ErrNotFound once it is removed.
type SpecReader func(containerID string) (*specs.Spec, error)
