package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CreateContainer creates a container in a pod, ready to start. A retry with the same metadata returns the same id.
func (s *Server) CreateContainer(
	ctx context.Context, r *cri.CreateContainerRequest,
) (*cri.CreateContainerResponse, error) {
	if err := checkCreateContainer(r); err != nil {
		return nil, err
	}
	id, err := s.deps.Engine.CreateContainer(ctx, r.GetPodSandboxId(), r.GetConfig())
	if err != nil {
		return nil, err
	}
	return &cri.CreateContainerResponse{ContainerId: id}, nil
}
