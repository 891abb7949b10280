package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ImageFsInfo returns the space used by images and by containers, which may be on the same filesystem.
func (s *Server) ImageFsInfo(ctx context.Context, _ *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	images, containers, err := s.deps.Images.Usage(ctx)
	if err != nil {
		return nil, err
	}
	return &cri.ImageFsInfoResponse{
		ImageFilesystems: filesystems(images), ContainerFilesystems: filesystems(containers),
	}, nil
}
