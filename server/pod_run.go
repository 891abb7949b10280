package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunPodSandbox makes a pod and returns once it is ready. Asked again with the same metadata it returns the same id.
func (s *Server) RunPodSandbox(ctx context.Context, r *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	if err := checkRunPod(r); err != nil {
		return nil, err
	}
	id, err := s.deps.Engine.RunPod(ctx, r.GetConfig(), r.GetRuntimeHandler())
	if err != nil {
		return nil, err
	}
	return &cri.RunPodSandboxResponse{PodSandboxId: id}, nil
}
