package server

import (
	"context"
	"fmt"
	"math"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CheckpointContainer saves a running container in a new file. A timeout of 0 means that of podd's configuration.
func (s *Server) CheckpointContainer(
	ctx context.Context, r *cri.CheckpointContainerRequest,
) (*cri.CheckpointContainerResponse, error) {
	if err := checkCheckpointContainer(r); err != nil {
		return nil, err
	}
	timeout := time.Duration(min(r.GetTimeout(), math.MaxInt32)) * time.Second
	if timeout > 0 { // it holds for the whole call, in which the engine also waits for other operations
		cause := fmt.Errorf("the checkpoint took longer than %v: %w", timeout, context.DeadlineExceeded)
		limited, cancel := context.WithTimeoutCause(ctx, timeout, cause)
		defer cancel()
		ctx = limited
	}
	if err := s.deps.Engine.CheckpointContainer(ctx, r.GetContainerId(), r.GetLocation(), timeout); err != nil {
		return nil, err
	}
	return &cri.CheckpointContainerResponse{}, nil
}
