package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerStatus answers from memory; the verbose answer also reads the container's config.json.
func (s *Server) ContainerStatus(
	ctx context.Context, r *cri.ContainerStatusRequest,
) (*cri.ContainerStatusResponse, error) {
	if err := checkContainerID(r.GetContainerId()); err != nil {
		return nil, err
	}
	c, err := s.deps.Engine.Container(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	resp := &cri.ContainerStatusResponse{Status: containerStatus(c, s.imageFinder(ctx))}
	if r.GetVerbose() {
		resp.Info, err = verbose(s.containerInfo(c))
	}
	return resp, err
}
