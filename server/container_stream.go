package server

import (
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StreamContainers is ListContainers without the limit on a message's size (KEP-5825).
func (s *Server) StreamContainers(
	r *cri.StreamContainersRequest, out grpc.ServerStreamingServer[cri.StreamContainersResponse],
) error {
	if err := checkContainerFilter(r.GetFilter()); err != nil {
		return err
	}
	return sendBatches(s.containers(out.Context(), r.GetFilter()), func(items []*cri.Container) error {
		return out.Send(&cri.StreamContainersResponse{Containers: items})
	})
}
