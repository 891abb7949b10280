package server

import (
	"context"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/record"
)

// PodSandboxStatus returns the status from memory. The timestamp is taken before the status is read: Evented PLEG
// ignores a status older than the last event of GetContainerEvents (KEP-3386). It uses containers_statuses only with a
// timestamp, so both are always set.
func (s *Server) PodSandboxStatus(
	ctx context.Context, r *cri.PodSandboxStatusRequest,
) (*cri.PodSandboxStatusResponse, error) {
	if err := checkPodID(r.GetPodSandboxId()); err != nil {
		return nil, err
	}
	now := time.Now()
	p, err := s.deps.Engine.Pod(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	containers := s.deps.Engine.ContainersOf(p.ID)
	resp := &cri.PodSandboxStatusResponse{
		Status:             podStatus(p),
		ContainersStatuses: s.statuses(ctx, containers),
		Timestamp:          now.UnixNano(),
	}
	if r.GetVerbose() {
		resp.Info, err = verbose(s.podInfo(p, containers))
	}
	return resp, err
}

func (s *Server) statuses(ctx context.Context, containers []record.ContainerView) []*cri.ContainerStatus {
	images := s.imageFinder(ctx)
	var out []*cri.ContainerStatus
	for _, c := range containers {
		out = append(out, containerStatus(c, images))
	}
	return out
}
