package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StopPodSandbox ends a pod's containers and gives its network back. A pod that is not there is stopped already.
func (s *Server) StopPodSandbox(ctx context.Context, r *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	if err := checkPodID(r.GetPodSandboxId()); err != nil {
		return nil, err
	}
	if err := s.onPod(ctx, r.GetPodSandboxId(), s.deps.Engine.StopPod); err != nil {
		return nil, err
	}
	return &cri.StopPodSandboxResponse{}, nil
}
