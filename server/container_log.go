package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ReopenContainerLog makes the container's monitor reopen its log file after the kubelet has renamed the old one. If
// the container is not running, it returns FailedPrecondition and creates no file.
func (s *Server) ReopenContainerLog(
	ctx context.Context, r *cri.ReopenContainerLogRequest,
) (*cri.ReopenContainerLogResponse, error) {
	if err := checkContainerID(r.GetContainerId()); err != nil {
		return nil, err
	}
	if err := s.deps.Engine.ReopenLog(ctx, r.GetContainerId()); err != nil {
		return nil, err
	}
	return &cri.ReopenContainerLogResponse{}, nil
}
