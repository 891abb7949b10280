package server

import (
	"context"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/image"
)

// ListImages returns all images, or the one that the filter names.
func (s *Server) ListImages(ctx context.Context, r *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	if err := checkImageFilter(r.GetFilter()); err != nil {
		return nil, err
	}
	images, err := s.images(ctx, r.GetFilter())
	if err != nil {
		return nil, err
	}
	resp := &cri.ListImagesResponse{}
	for _, img := range images {
		resp.Images = append(resp.Images, listedImage(img))
	}
	return resp, nil
}

func (s *Server) images(ctx context.Context, f *cri.ImageFilter) ([]*image.Image, error) {
	name := f.GetImage().GetImage()
	if name == "" {
		return s.deps.Images.List(ctx)
	}
	img, err := s.deps.Images.Resolve(ctx, name)
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []*image.Image{img}, nil
}
