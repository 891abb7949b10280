package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RuntimeConfig returns the cgroup driver that the kubelet must use.
func (s *Server) RuntimeConfig(context.Context, *cri.RuntimeConfigRequest) (*cri.RuntimeConfigResponse, error) {
	driver := cri.CgroupDriver_CGROUPFS
	if s.cfg.SystemdCgroup {
		driver = cri.CgroupDriver_SYSTEMD
	}
	return &cri.RuntimeConfigResponse{Linux: &cri.LinuxRuntimeConfiguration{CgroupDriver: driver}}, nil
}
