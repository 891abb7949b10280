package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// kubeletAPIVersion is the only VersionResponse.version that the kubelet accepts.
const kubeletAPIVersion = "0.1.0"

// Version returns the name and the version of the runtime, and the version of the API.
func (s *Server) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{
		Version:           kubeletAPIVersion,
		RuntimeName:       "podd",
		RuntimeVersion:    s.cfg.Version,
		RuntimeApiVersion: "v1",
	}, nil
}
