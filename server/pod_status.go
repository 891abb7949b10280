package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PodSandboxStatus answers from memory. containers_statuses and timestamp go together (Evented PLEG believes the
// one only with the other); they stay empty until GetContainerEvents exists.
func (s *Server) PodSandboxStatus(_ context.Context, r *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	if err := checkPodID(r.GetPodSandboxId()); err != nil {
		return nil, err
	}
	p, err := s.deps.Engine.Pod(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	resp := &cri.PodSandboxStatusResponse{Status: podStatus(p)}
	if r.GetVerbose() {
		resp.Info, err = verbose(podInfo(p))
	}
	return resp, err
}
