package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UpdateContainerResources changes a container's limits.
func (s *Server) UpdateContainerResources(
	ctx context.Context, r *cri.UpdateContainerResourcesRequest,
) (*cri.UpdateContainerResourcesResponse, error) {
	if err := checkUpdateContainer(r); err != nil {
		return nil, err
	}
	if err := s.deps.Engine.UpdateContainer(ctx, r.GetContainerId(), r.GetLinux()); err != nil {
		return nil, err
	}
	return &cri.UpdateContainerResourcesResponse{}, nil
}
