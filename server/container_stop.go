package server

import (
	"context"
	"math"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StopContainer sends the stop signal and kills the container after the timeout. It is not an error if the container
// does not exist.
func (s *Server) StopContainer(ctx context.Context, r *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	if err := checkStopContainer(r); err != nil {
		return nil, err
	}
	err := s.onContainer(ctx, r.GetContainerId(), func(ctx context.Context, id string) error {
		return s.deps.Engine.StopContainer(ctx, id, seconds(r.GetTimeout()))
	})
	if err != nil {
		return nil, err
	}
	return &cri.StopContainerResponse{}, nil
}

// seconds converts a timeout of CRI, limited to the range of a Duration (292 years).
func seconds(n int64) time.Duration {
	const longest = int64(math.MaxInt64 / time.Second)
	return time.Duration(max(0, min(n, longest))) * time.Second
}
