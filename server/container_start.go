package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StartContainer starts a created container's process.
func (s *Server) StartContainer(
	ctx context.Context, r *cri.StartContainerRequest,
) (*cri.StartContainerResponse, error) {
	if err := checkContainerID(r.GetContainerId()); err != nil {
		return nil, err
	}
	if err := s.deps.Engine.StartContainer(ctx, r.GetContainerId()); err != nil {
		return nil, err
	}
	return &cri.StartContainerResponse{}, nil
}
