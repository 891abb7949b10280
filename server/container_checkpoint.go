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
	if seconds := min(r.GetTimeout(), math.MaxInt32); seconds > 0 {
		cause := fmt.Errorf("the checkpoint took longer than %d s: %w", seconds, context.DeadlineExceeded)
		limited, cancel := context.WithTimeoutCause(ctx, time.Duration(seconds)*time.Second, cause)
		defer cancel()
		ctx = limited
	}
	if err := s.deps.Engine.CheckpointContainer(ctx, r.GetContainerId(), r.GetLocation()); err != nil {
		return nil, err
	}
	return &cri.CheckpointContainerResponse{}, nil
}
