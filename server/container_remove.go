package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RemoveContainer removes a container, running or not. A container that is not there is removed already.
func (s *Server) RemoveContainer(ctx context.Context, r *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	if err := checkContainerID(r.GetContainerId()); err != nil {
		return nil, err
	}
	if err := s.onContainer(ctx, r.GetContainerId(), s.deps.Engine.RemoveContainer); err != nil {
		return nil, err
	}
	return &cri.RemoveContainerResponse{}, nil
}
