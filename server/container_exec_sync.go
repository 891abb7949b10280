package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ExecSync runs a command in a container and returns what it printed. A timeout becomes DeadlineExceeded, which is
// how the kubelet knows that a probe was slow and not wrong.
func (s *Server) ExecSync(ctx context.Context, r *cri.ExecSyncRequest) (*cri.ExecSyncResponse, error) {
	if err := checkExecSync(r); err != nil {
		return nil, err
	}
	result, err := s.deps.Engine.ExecSync(ctx, r.GetContainerId(), r.GetCmd(), seconds(r.GetTimeout()))
	if err != nil {
		return nil, err
	}
	stdout, stderr := fitMessage(result.Stdout, result.Stderr)
	return &cri.ExecSyncResponse{Stdout: stdout, Stderr: stderr, ExitCode: result.Code}, nil
}

// fitMessage cuts the two outputs so that they fit into one message: each may be 16 MiB by the proto, and so may
// the message that carries both. What one does not use of its half the other may have.
func fitMessage(stdout, stderr []byte) (o, e []byte) {
	const room = maxMessage - 1<<10 // the rest of the message is a few bytes
	forErr := max(room/2, room-len(stdout))
	stderr = stderr[:min(len(stderr), forErr)]
	return stdout[:min(len(stdout), room-len(stderr))], stderr
}
