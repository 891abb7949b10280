package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RemovePodSandbox removes a pod with its containers, running or not. A pod that is not there is removed already.
func (s *Server) RemovePodSandbox(ctx context.Context, r *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	if err := checkPodID(r.GetPodSandboxId()); err != nil {
		return nil, err
	}
	if err := s.onPod(ctx, r.GetPodSandboxId(), s.deps.Engine.RemovePod); err != nil {
		return nil, err
	}
	return &cri.RemovePodSandboxResponse{}, nil
}
