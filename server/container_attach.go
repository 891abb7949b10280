package server

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
)

// Attach prepares a session with the input and output of a running container's first process. As CRI demands, tty must
// match the container's.
func (s *Server) Attach(ctx context.Context, r *cri.AttachRequest) (*cri.AttachResponse, error) {
	if err := checkAttach(r); err != nil {
		return nil, err
	}
	c, err := s.running(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if want := c.Config.GetTty(); r.GetTty() != want {
		return nil, fmt.Errorf("%w: tty: is %t, must be %t as in the config of container %s",
			errdefs.ErrInvalidArgument, r.GetTty(), want, c.ID)
	}
	url, err := s.deps.Streamer.Attach(oci.Request(ctx), &cri.AttachRequest{
		ContainerId: c.ID, Tty: r.GetTty(), Stdin: r.GetStdin(), Stdout: r.GetStdout(), Stderr: r.GetStderr(),
	})
	if err != nil {
		return nil, err
	}
	return &cri.AttachResponse{Url: url}, nil
}
