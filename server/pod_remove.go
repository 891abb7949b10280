package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RemovePodSandbox removes a pod and its containers, also running ones. It is not an error if the pod does not exist.
func (s *Server) RemovePodSandbox(
	ctx context.Context, r *cri.RemovePodSandboxRequest,
) (*cri.RemovePodSandboxResponse, error) {
	if err := checkPodID(r.GetPodSandboxId()); err != nil {
		return nil, err
	}
	if err := s.onPod(ctx, r.GetPodSandboxId(), s.deps.Engine.RemovePod); err != nil {
		return nil, err
	}
	return &cri.RemovePodSandboxResponse{}, nil
}
