package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UpdatePodSandboxResources changes the limits of the pod's cgroup (KEP-1287).
func (s *Server) UpdatePodSandboxResources(
	ctx context.Context, r *cri.UpdatePodSandboxResourcesRequest,
) (*cri.UpdatePodSandboxResourcesResponse, error) {
	if err := checkUpdatePod(r); err != nil {
		return nil, err
	}
	if err := s.deps.Engine.UpdatePod(ctx, r.GetPodSandboxId(), r.GetOverhead(), r.GetResources()); err != nil {
		return nil, err
	}
	return &cri.UpdatePodSandboxResourcesResponse{}, nil
}

func checkUpdatePod(r *cri.UpdatePodSandboxResourcesRequest) error {
	c := newCheck()
	c.id("pod_sandbox_id", r.GetPodSandboxId())
	c.resources("overhead", r.GetOverhead())
	c.resources("resources", r.GetResources())
	c.that(r.GetOverhead() != nil || r.GetResources() != nil, "resources", "must be set if overhead is not")
	return c.err()
}
