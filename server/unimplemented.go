package server

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// This file has all RPCs that podd does not implement.

const noContainerCheckpoints = "podd cannot checkpoint one container; CheckpointPod saves a pod of gVisor"

// CheckpointContainer is not implemented yet.
func (s *Server) CheckpointContainer(
	context.Context, *cri.CheckpointContainerRequest,
) (*cri.CheckpointContainerResponse, error) {
	return nil, fmt.Errorf("%w: %s", errdefs.ErrNotImplemented, noContainerCheckpoints)
}
