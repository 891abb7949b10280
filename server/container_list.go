package server

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListContainers answers from memory.
func (s *Server) ListContainers(
	ctx context.Context, r *cri.ListContainersRequest,
) (*cri.ListContainersResponse, error) {
	if err := checkContainerFilter(r.GetFilter()); err != nil {
		return nil, err
	}
	resp := &cri.ListContainersResponse{}
	for c := range s.containers(ctx, r.GetFilter()) {
		resp.Containers = append(resp.Containers, c)
	}
	return resp, nil
}

// containers converts the containers that match the filter, one at a time.
func (s *Server) containers(ctx context.Context, f *cri.ContainerFilter) iter.Seq[*cri.Container] {
	return func(yield func(*cri.Container) bool) {
		images := s.imageFinder(ctx)
		pass := s.containerCache.newPass()
		for c := range s.deps.Engine.Containers() {
			img := images.image(c.ImageID) // the version of the cached item: its names are in it
			fixed := pass.encode(c.Container, img, func() proto.Message { return fixedContainerItem(c.Container, img) })
			if matchContainer(f, c) && !yield(containerItem(c, img, fixed)) {
				return
			}
		}
		pass.commit()
	}
}
