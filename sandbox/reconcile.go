package sandbox

import (
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/record"
)

// The action of a restarted daemon on a record, given its observations on the machine. Both functions are pure;
// README.md has the table in prose.

type podAction string

const (
	podKeep     podAction = "keep"     // as it is; watch its infra container
	podDiscard  podAction = "discard"  // tear down and remove the record
	podNotReady podAction = "notready" // its processes are gone; the network stays attached until Stop
)

// podObservation are the observations of a recorded pod.
type podObservation struct {
	sameBoot bool
	// alive: the namespaces are pinned and the infra container, if there is one, runs.
	alive bool
}

func reconcilePod(recorded record.PodState, seen podObservation) podAction {
	switch {
	case recorded == record.PodCreating:
		return podDiscard
	case recorded == record.PodReady && seen.sameBoot && seen.alive:
		return podKeep
	case recorded == record.PodNotReady:
		return podKeep
	}
	return podNotReady
}

type containerAction string

const (
	containerDiscard containerAction = "discard" // tear down and remove the record
	containerWatch   containerAction = "watch"   // the watcher sees the exit, also one in the past
	containerStarted containerAction = "started" // it was started after the record was written: running, then watch
	containerLost    containerAction = "lost"    // exited, with an unknown status
	containerRelease containerAction = "release" // exited, but the runtime still has state of it
	containerKeep    containerAction = "keep"
)

// containerObservation are the observations of a recorded container.
type containerObservation struct {
	sameBoot bool
	status   oci.Status
	// waiting is true if the container has no process before it is started. status is "" if it is not known.
	waiting bool
}

func reconcileContainer(recorded record.ContainerState, seen containerObservation) containerAction {
	switch {
	case recorded == record.ContainerCreating:
		return containerDiscard
	case recorded == record.ContainerExited && seen.sameBoot && seen.status != oci.Absent:
		return containerRelease
	case recorded == record.ContainerExited:
		return containerKeep
	case !seen.sameBoot:
		return containerLost
	case seen.waiting && (seen.status == oci.Created || seen.status == ""):
		return containerKeep
	case recorded == record.ContainerCreated && (seen.status == oci.Running || seen.status == oci.Paused):
		return containerStarted
	}
	return containerWatch
}
