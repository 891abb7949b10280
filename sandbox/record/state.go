package record

import (
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/logfile"
)

// PodState is the state of a pod.
type PodState string

// The states of a pod; podTransitions lists the transitions.
const (
	PodCreating PodState = "creating"
	PodReady    PodState = "ready"
	PodStopping PodState = "stopping"
	PodNotReady PodState = "notready"
)

// podTransitions lists the states that may follow each state:
//
//	Creating -> Ready -> Stopping -> NotReady
//	Creating -> NotReady    the creation failed and so did its undo, or the pod was stopped during it
//	Ready    -> NotReady    a namespace, a file or the infra container is gone, or the machine was rebooted
//	NotReady -> Stopping    a repeated stop, for the resources that the last one could not free
var podTransitions = map[PodState][]PodState{
	PodCreating: {PodReady, PodStopping, PodNotReady},
	PodReady:    {PodStopping, PodNotReady},
	PodStopping: {PodNotReady},
	PodNotReady: {PodStopping},
}

// CheckTransition returns errdefs.ErrFailedPrecondition unless a pod may go from s to the state to.
func (s PodState) CheckTransition(to PodState) error { return checkTransition(podTransitions, s, to) }

// PodStatus is the changing part of a pod: a value, replaced whole, on disk as in memory.
type PodStatus struct {
	State PodState `json:"state"`
	// IPs are the pod's addresses, the primary one first; none on the host network.
	IPs []string `json:"ips,omitempty"`
	// Infra is the process of the infra container, for pods that have one.
	Infra oci.Process `json:"infra,omitzero"`
	// LogDir is the log_directory as it was when the pod was created, zero if there is none.
	LogDir logfile.Dir `json:"logDir,omitzero"`
	// Limits has the overhead and the resources that the last update set, nil if there was none.
	Limits *cri.LinuxPodSandboxConfig `json:"-"`
	// Reason says why the pod is not ready, for people.
	Reason string `json:"reason,omitempty"`
}

// ContainerState is the state of a container.
type ContainerState string

// The states of a container; containerTransitions lists the transitions.
const (
	ContainerCreating ContainerState = "creating"
	ContainerCreated  ContainerState = "created"
	ContainerRunning  ContainerState = "running"
	ContainerExited   ContainerState = "exited"
)

// containerTransitions lists the states that may follow each state:
//
//	Creating -> Created -> Running -> Exited
//	Created  -> Exited    the start failed, or the container was stopped before it
var containerTransitions = map[ContainerState][]ContainerState{
	ContainerCreating: {ContainerCreated},
	ContainerCreated:  {ContainerRunning, ContainerExited},
	ContainerRunning:  {ContainerExited},
}

// CheckTransition is PodState.CheckTransition for containers.
func (s ContainerState) CheckTransition(to ContainerState) error {
	return checkTransition(containerTransitions, s, to)
}

func checkTransition[S ~string](table map[S][]S, from, to S) error {
	if from == to || slices.Contains(table[from], to) {
		return nil
	}
	return fmt.Errorf("%w: no transition from state %s to %s", errdefs.ErrFailedPrecondition, from, to)
}

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
	// Adjusted are the names of the fields that NRI plugins changed when the container was created, by plugin. The
	// changes are in config.json, limits also in Resources.
	Adjusted map[string][]string `json:"adjusted,omitempty"`
	// User is the user that the process was started as.
	User *specs.User `json:"user,omitempty"`
}
