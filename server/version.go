package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// kubeletAPIVersion is what the kubelet compares VersionResponse.version with; it is not podd's to choose.
const kubeletAPIVersion = "0.1.0"

// Version names the runtime and the API that it speaks.
func (s *Server) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{
		Version:           kubeletAPIVersion,
		RuntimeName:       "podd",
		RuntimeVersion:    s.cfg.Version,
		RuntimeApiVersion: "v1",
	}, nil
}
