package server

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// This file has all RPCs that podd does not implement.

const noCheckpoints = "podd cannot checkpoint and restore containers or pods"

func errNoCheckpoints() error {
	return fmt.Errorf("%w: %s", errdefs.ErrNotImplemented, noCheckpoints)
}

// CheckpointContainer is not implemented yet.
func (s *Server) CheckpointContainer(
	context.Context, *cri.CheckpointContainerRequest,
) (*cri.CheckpointContainerResponse, error) {
	return nil, errNoCheckpoints()
}

// CheckpointPod is not implemented yet.
func (s *Server) CheckpointPod(context.Context, *cri.CheckpointPodRequest) (*cri.CheckpointPodResponse, error) {
	return nil, errNoCheckpoints()
}

// RestorePod is not implemented yet.
func (s *Server) RestorePod(context.Context, *cri.RestorePodRequest) (*cri.RestorePodResponse, error) {
	return nil, errNoCheckpoints()
}
