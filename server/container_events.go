package server

import (
	"context"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/lifecycle"
)

// GetContainerEvents sends the events of containers and pods from now on, until the client disconnects. The stream of a
// client that reads too slowly ends with ResourceExhausted, so that it lists again: no event is dropped silently.
func (s *Server) GetContainerEvents(
	_ *cri.GetEventsRequest, out grpc.ServerStreamingServer[cri.ContainerEventResponse],
) error {
	return s.deps.Engine.Events(out.Context(), func(e Event) error {
		return out.Send(s.event(out.Context(), e))
	})
}

// event always includes the status of the pod and of all its containers: the kubelet builds its pod status from them.
func (s *Server) event(ctx context.Context, e Event) *cri.ContainerEventResponse {
	return &cri.ContainerEventResponse{
		ContainerId:        e.ID,
		ContainerEventType: eventType(e.Type),
		CreatedAt:          e.At.UnixNano(),
		PodSandboxStatus:   podStatus(e.Pod),
		ContainersStatuses: s.statuses(ctx, e.Containers),
	}
}

func eventType(t lifecycle.EventType) cri.ContainerEventType {
	switch t {
	case lifecycle.Started:
		return cri.ContainerEventType_CONTAINER_STARTED_EVENT
	case lifecycle.Stopped:
		return cri.ContainerEventType_CONTAINER_STOPPED_EVENT
	case lifecycle.Deleted:
		return cri.ContainerEventType_CONTAINER_DELETED_EVENT
	default:
		return cri.ContainerEventType_CONTAINER_CREATED_EVENT
	}
}
