package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CheckpointPod saves the running containers of a pod into a directory of the caller.
func (s *Server) CheckpointPod(
	ctx context.Context, r *cri.CheckpointPodRequest,
) (*cri.CheckpointPodResponse, error) {
	if err := checkCheckpointPod(ctx, r); err != nil {
		return nil, err
	}
	err := s.deps.Engine.CheckpointPod(ctx, r.GetPodSandboxId(), r.GetOutputPath(), r.GetContainerIds())
	if err != nil {
		return nil, err
	}
	return &cri.CheckpointPodResponse{}, nil
}
