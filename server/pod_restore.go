package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox"
)

// RestorePod creates a pod from a checkpoint. Its containers are created, and continue when they are started.
func (s *Server) RestorePod(ctx context.Context, r *cri.RestorePodRequest) (*cri.RestorePodResponse, error) {
	if err := checkRestorePod(r); err != nil {
		return nil, err
	}
	pod, ids, err := s.deps.Engine.RestorePod(ctx, sandbox.RestoreRequest{
		Path: r.GetCheckpointPath(), Pod: r.GetConfig(), Containers: r.GetContainerConfigs(), Handler: r.GetRuntimeHandler(),
	})
	if err != nil {
		return nil, err
	}
	response := &cri.RestorePodResponse{PodSandboxId: pod}
	for i, id := range ids {
		name := r.GetContainerConfigs()[i].GetMetadata().GetName()
		response.RestoredContainers = append(response.RestoredContainers, &cri.RestoredContainer{Name: name, ContainerId: id})
	}
	return response, nil
}
