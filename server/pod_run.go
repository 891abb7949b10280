package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunPodSandbox creates a pod and returns once it is ready. A retry with the same metadata returns the same id.
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
