package server

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/lifecycle"
)

func testGetContainerEvents(t *testing.T) {
	for typ, want := range map[lifecycle.EventType]cri.ContainerEventType{
		lifecycle.Created: cri.ContainerEventType_CONTAINER_CREATED_EVENT,
		lifecycle.Started: cri.ContainerEventType_CONTAINER_STARTED_EVENT,
		lifecycle.Stopped: cri.ContainerEventType_CONTAINER_STOPPED_EVENT,
		lifecycle.Deleted: cri.ContainerEventType_CONTAINER_DELETED_EVENT,
	} {
		h := newHarness(t)
		pod := h.engine.pods[0]
		h.engine.events = []Event{{Type: typ, ID: runningID, At: created, Pod: pod, Containers: h.engine.containers}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		stream, err := h.runtime.GetContainerEvents(ctx, &cri.GetEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		wantEvent := &cri.ContainerEventResponse{
			ContainerId: runningID, ContainerEventType: want, CreatedAt: created.UnixNano(),
			PodSandboxStatus: podStatus(pod), ContainersStatuses: []*cri.ContainerStatus{runningStatus(), exitedStatus()},
		}
		if !proto.Equal(got, wantEvent) {
			t.Errorf("got  %v\nwant %v", got, wantEvent)
		}
		cancel()
		_, err = stream.Recv()
		wantCode(t, err, codes.Canceled)
	}
	t.Run("too slow", func(t *testing.T) {
		h := newHarness(t)
		h.engine.eventsEnd = fmt.Errorf("%w: list and subscribe again", errdefs.ErrResourceExhausted)
		stream, err := h.runtime.GetContainerEvents(t.Context(), &cri.GetEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		wantCode(t, err, codes.ResourceExhausted, "subscribe again")
	})
}
