package server

import (
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StreamPodSandboxes is ListPodSandbox without the limit on a message's size (KEP-5825).
func (s *Server) StreamPodSandboxes(
	r *cri.StreamPodSandboxesRequest, out grpc.ServerStreamingServer[cri.StreamPodSandboxesResponse],
) error {
	if err := checkPodFilter(r.GetFilter()); err != nil {
		return err
	}
	return sendBatches(s.pods(r.GetFilter()), func(items []*cri.PodSandbox) error {
		return out.Send(&cri.StreamPodSandboxesResponse{PodSandboxes: items})
	})
}
