package sandbox

import (
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
)

// podTransitions lists where a pod may go from each state:
//
//	Creating -> Ready -> Stopping -> NotReady
//	Creating -> NotReady    the creation failed and so did its undo, or the pod was stopped meanwhile
//	Ready    -> NotReady    the infra container died, or the machine was rebooted
//	NotReady -> Stopping    a repeated stop, for what the last one could not undo
var podTransitions = map[PodState][]PodState{
	PodCreating: {PodReady, PodStopping, PodNotReady},
	PodReady:    {PodStopping, PodNotReady},
	PodStopping: {PodNotReady},
	PodNotReady: {PodStopping},
}

// containerTransitions lists where a container may go from each state:
//
//	Creating -> Created -> Running -> Exited
//	Created  -> Exited    the start failed, or the container was stopped before it
var containerTransitions = map[ContainerState][]ContainerState{
	ContainerCreating: {ContainerCreated},
	ContainerCreated:  {ContainerRunning, ContainerExited},
	ContainerRunning:  {ContainerExited},
}

func checkTransition[S ~string](table map[S][]S, from, to S) error {
	if from == to || slices.Contains(table[from], to) {
		return nil
	}
	return fmt.Errorf("%w: no way from state %s to %s", errdefs.ErrFailedPrecondition, from, to)
}
