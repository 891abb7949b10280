package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Attach prepares a session with the input and output of a running container's first process.
func (s *Server) Attach(_ context.Context, r *cri.AttachRequest) (*cri.AttachResponse, error) {
	if err := checkAttach(r); err != nil {
		return nil, err
	}
	if s.deps.Streamer == nil {
		return nil, errNoStreaming()
	}
	id, err := s.runningID(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	url, err := s.deps.Streamer.Attach(&cri.AttachRequest{
		ContainerId: id, Tty: r.GetTty(), Stdin: r.GetStdin(), Stdout: r.GetStdout(), Stderr: r.GetStderr(),
	})
	if err != nil {
		return nil, err
	}
	return &cri.AttachResponse{Url: url}, nil
}
