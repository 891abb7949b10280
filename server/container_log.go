package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ReopenContainerLog makes the monitor write to a new log file after the kubelet has moved the old one away. A
// container that does not run has nothing to write: FailedPrecondition, and no file is made.
func (s *Server) ReopenContainerLog(ctx context.Context, r *cri.ReopenContainerLogRequest) (*cri.ReopenContainerLogResponse, error) {
	if err := checkContainerID(r.GetContainerId()); err != nil {
		return nil, err
	}
	if err := s.deps.Engine.ReopenLog(ctx, r.GetContainerId()); err != nil {
		return nil, err
	}
	return &cri.ReopenContainerLogResponse{}, nil
}
