package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UpdateRuntimeConfig sets the node's pod CIDR in the network. An empty one is ignored.
func (s *Server) UpdateRuntimeConfig(
	ctx context.Context, r *cri.UpdateRuntimeConfigRequest,
) (*cri.UpdateRuntimeConfigResponse, error) {
	if err := checkRuntimeConfig(r); err != nil {
		return nil, err
	}
	if cidr := r.GetRuntimeConfig().GetNetworkConfig().GetPodCidr(); cidr != "" {
		if err := s.deps.Network.SetPodCIDR(ctx, cidr); err != nil {
			return nil, err
		}
	}
	return &cri.UpdateRuntimeConfigResponse{}, nil
}
