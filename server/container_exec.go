package server

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/record"
)

// Exec prepares a session that runs a command in a running container.
func (s *Server) Exec(ctx context.Context, r *cri.ExecRequest) (*cri.ExecResponse, error) {
	if err := checkExec(r); err != nil {
		return nil, err
	}
	c, err := s.running(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	url, err := s.deps.Streamer.Exec(oci.Request(ctx), &cri.ExecRequest{
		ContainerId: c.ID, Cmd: r.GetCmd(), Tty: r.GetTty(),
		Stdin: r.GetStdin(), Stdout: r.GetStdout(), Stderr: r.GetStderr(),
	})
	if err != nil {
		return nil, err
	}
	return &cri.ExecResponse{Url: url}, nil
}

// running returns a running container, ErrFailedPrecondition if it is not running.
func (s *Server) running(id string) (record.ContainerView, error) {
	c, err := s.deps.Engine.Container(id)
	if err != nil {
		return record.ContainerView{}, err
	}
	if c.Status.State != record.ContainerRunning {
		return record.ContainerView{}, fmt.Errorf("%w: container %s is %s, it must be running",
			errdefs.ErrFailedPrecondition, c.ID, c.Status.State)
	}
	return c, nil
}
