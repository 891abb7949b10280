package server

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RemoveImage removes an image with all of its names. It is not an error if the image does not exist. An image that
// containers use is refused: they would lose their files.
func (s *Server) RemoveImage(ctx context.Context, r *cri.RemoveImageRequest) (*cri.RemoveImageResponse, error) {
	if err := checkImage(r.GetImage()); err != nil {
		return nil, err
	}
	img, err := s.deps.Images.Resolve(ctx, r.GetImage().GetImage())
	if errdefs.IsNotFound(err) {
		return &cri.RemoveImageResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	if users := s.deps.Engine.InUse(img.ID); len(users) > 0 {
		return nil, fmt.Errorf("%w: image %s is in use by %d containers such as %s, remove them first",
			errdefs.ErrFailedPrecondition, img.ID, len(users), users[0])
	}
	if err := unlessNotFound(s.deps.Images.Remove(ctx, img.ID)); err != nil {
		return nil, err
	}
	return &cri.RemoveImageResponse{}, nil
}
