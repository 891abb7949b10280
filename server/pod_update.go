package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UpdatePodSandboxResources changes the limits of the pod's cgroup (KEP-1287).
func (s *Server) UpdatePodSandboxResources(
	ctx context.Context, r *cri.UpdatePodSandboxResourcesRequest,
) (*cri.UpdatePodSandboxResourcesResponse, error) {
	if r.GetOverhead() != nil {
		unlimited(r.GetResources())
	}
	if err := checkUpdatePod(r); err != nil {
		return nil, err
	}
	if err := s.deps.Engine.UpdatePod(ctx, r.GetPodSandboxId(), r.GetOverhead(), r.GetResources()); err != nil {
		return nil, err
	}
	return &cri.UpdatePodSandboxResourcesResponse{}, nil
}

// unlimited replaces the kubelet's values for "no limit" of a pod with an overhead, which it subtracts from -1, too
// (kubernetes/kubernetes#141327).
func unlimited(r *cri.LinuxContainerResources) {
	if r != nil {
		r.CpuQuota, r.MemoryLimitInBytes = max(r.CpuQuota, -1), max(r.MemoryLimitInBytes, -1)
	}
}

func checkUpdatePod(r *cri.UpdatePodSandboxResourcesRequest) error {
	c := newCheck()
	c.id("pod_sandbox_id", r.GetPodSandboxId())
	c.resources("overhead", r.GetOverhead())
	c.resources("resources", r.GetResources())
	c.that(r.GetOverhead() != nil || r.GetResources() != nil, "resources", "must be set if overhead is not")
	return c.err()
}
