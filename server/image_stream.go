package server

import (
	"iter"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/image"
)

// StreamImages is ListImages without the limit on a message's size (KEP-5825).
func (s *Server) StreamImages(
	r *cri.StreamImagesRequest, out grpc.ServerStreamingServer[cri.StreamImagesResponse],
) error {
	if err := checkImageFilter(r.GetFilter()); err != nil {
		return err
	}
	images, err := s.images(out.Context(), r.GetFilter())
	if err != nil {
		return err
	}
	return sendBatches(converted(images), func(items []*cri.Image) error {
		return out.Send(&cri.StreamImagesResponse{Images: items})
	})
}

func converted(images []*image.Image) iter.Seq[*cri.Image] {
	return func(yield func(*cri.Image) bool) {
		for _, img := range images {
			if !yield(imageItem(img)) {
				return
			}
		}
	}
}
