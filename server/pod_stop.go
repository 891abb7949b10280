package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StopPodSandbox stops a pod's containers and releases its network. It is not an error if the pod does not exist.
func (s *Server) StopPodSandbox(
	ctx context.Context, r *cri.StopPodSandboxRequest,
) (*cri.StopPodSandboxResponse, error) {
	if err := checkPodID(r.GetPodSandboxId()); err != nil {
		return nil, err
	}
	if err := s.onPod(ctx, r.GetPodSandboxId(), s.deps.Engine.StopPod); err != nil {
		return nil, err
	}
	return &cri.StopPodSandboxResponse{}, nil
}
