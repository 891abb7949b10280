package server

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/record"
)

// PortForward prepares a session that connects to ports of a ready pod.
func (s *Server) PortForward(ctx context.Context, r *cri.PortForwardRequest) (*cri.PortForwardResponse, error) {
	if err := checkPortForward(r); err != nil {
		return nil, err
	}
	p, err := s.deps.Engine.Pod(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if p.Status.State != record.PodReady {
		return nil, fmt.Errorf("%w: pod %s is %s, it must be ready",
			errdefs.ErrFailedPrecondition, p.ID, p.Status.State)
	}
	url, err := s.deps.Streamer.PortForward(oci.Request(ctx),
		&cri.PortForwardRequest{PodSandboxId: p.ID, Port: r.GetPort()})
	if err != nil {
		return nil, err
	}
	return &cri.PortForwardResponse{Url: url}, nil
}
