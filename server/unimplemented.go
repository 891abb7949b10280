package server

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What podd cannot do yet is said here, one line per RPC, and nowhere else.

func unimplemented(sentence string) error {
	return fmt.Errorf("%w: %s", errdefs.ErrNotImplemented, sentence)
}

const (
	noCheckpoints = "podd does not checkpoint and restore yet"
)

// CheckpointContainer is not implemented yet.
func (s *Server) CheckpointContainer(context.Context, *cri.CheckpointContainerRequest) (*cri.CheckpointContainerResponse, error) {
	return nil, unimplemented(noCheckpoints)
}

// CheckpointPod is not implemented yet.
func (s *Server) CheckpointPod(context.Context, *cri.CheckpointPodRequest) (*cri.CheckpointPodResponse, error) {
	return nil, unimplemented(noCheckpoints)
}

// RestorePod is not implemented yet.
func (s *Server) RestorePod(context.Context, *cri.RestorePodRequest) (*cri.RestorePodResponse, error) {
	return nil, unimplemented(noCheckpoints)
}
