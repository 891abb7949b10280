package server

import (
	"context"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox"
)

// GetContainerEvents tells what happens to containers and pods from now on, until the client goes. A client that
// reads too slowly is cut off with ResourceExhausted, so that it lists again: events are never dropped in silence.
func (s *Server) GetContainerEvents(_ *cri.GetEventsRequest, out grpc.ServerStreamingServer[cri.ContainerEventResponse]) error {
	return s.deps.Engine.Events(out.Context(), func(e Event) error {
		return out.Send(s.event(out.Context(), e))
	})
}

// event always has both the pod's status and those of its containers: the kubelet makes its picture of the pod from them.
func (s *Server) event(ctx context.Context, e Event) *cri.ContainerEventResponse {
	return &cri.ContainerEventResponse{
		ContainerId:        e.ID,
		ContainerEventType: eventType(e.Type),
		CreatedAt:          e.At.UnixNano(),
		PodSandboxStatus:   podStatus(e.Pod),
		ContainersStatuses: s.statuses(ctx, e.Containers),
	}
}

func eventType(t sandbox.EventType) cri.ContainerEventType {
	switch t {
	case sandbox.EventStarted:
		return cri.ContainerEventType_CONTAINER_STARTED_EVENT
	case sandbox.EventStopped:
		return cri.ContainerEventType_CONTAINER_STOPPED_EVENT
	case sandbox.EventDeleted:
		return cri.ContainerEventType_CONTAINER_DELETED_EVENT
	default:
		return cri.ContainerEventType_CONTAINER_CREATED_EVENT
	}
}
