package server

import (
	"context"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ImageStatus describes an image. If it does not exist, the response is empty.
func (s *Server) ImageStatus(ctx context.Context, r *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	if err := checkImage(r.GetImage()); err != nil {
		return nil, err
	}
	img, err := s.deps.Images.Resolve(ctx, r.GetImage().GetImage())
	if errdefs.IsNotFound(err) {
		return &cri.ImageStatusResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	resp := &cri.ImageStatusResponse{Image: imageItem(img)}
	if r.GetVerbose() {
		resp.Info, err = verbose(imageInfo(img))
	}
	return resp, err
}
