package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RemoveContainer removes a container, also a running one. It is not an error if the container does not exist.
func (s *Server) RemoveContainer(
	ctx context.Context, r *cri.RemoveContainerRequest,
) (*cri.RemoveContainerResponse, error) {
	if err := checkContainerID(r.GetContainerId()); err != nil {
		return nil, err
	}
	if err := s.onContainer(ctx, r.GetContainerId(), s.deps.Engine.RemoveContainer); err != nil {
		return nil, err
	}
	return &cri.RemoveContainerResponse{}, nil
}
