package server

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/image"
)

// PullImage fetches an image and returns its id.
func (s *Server) PullImage(ctx context.Context, r *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	if err := checkPullImage(r); err != nil {
		return nil, err
	}
	if err := s.checkHandler(r.GetImage().GetRuntimeHandler()); err != nil {
		return nil, err
	}
	img, err := s.deps.Images.Pull(ctx, image.PullRequest{
		Ref:         r.GetImage().GetImage(),
		Auth:        pullAuth(r.GetAuth()),
		Annotations: r.GetImage().GetAnnotations(),
		Namespace:   r.GetSandboxConfig().GetMetadata().GetNamespace(),
	})
	if err != nil {
		return nil, err
	}
	return &cri.PullImageResponse{ImageRef: img.ID}, nil
}

// checkHandler refuses handlers that are not configured; "" is the default one. All handlers share the image store, so
// an image pulled for one can be used by every other.
func (s *Server) checkHandler(name string) error {
	if name == "" {
		return nil
	}
	for _, h := range s.deps.Engine.Handlers() {
		if h.Name == name {
			return nil
		}
	}
	return fmt.Errorf("%w: image.runtime_handler: is not configured, see runtime.handlers in podd.toml",
		errdefs.ErrInvalidArgument)
}

// pullAuth returns nil if the request has no credentials. The node's own are used then.
func pullAuth(a *cri.AuthConfig) *image.Auth {
	auth := image.Auth{
		Username:      a.GetUsername(),
		Password:      a.GetPassword(),
		Auth:          a.GetAuth(),
		ServerAddress: a.GetServerAddress(),
		IdentityToken: a.GetIdentityToken(),
		RegistryToken: a.GetRegistryToken(),
	}
	if auth == (image.Auth{ServerAddress: auth.ServerAddress}) {
		return nil
	}
	return &auth
}
