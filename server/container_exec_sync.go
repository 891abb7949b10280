package server

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ExecSync runs a command in a container and returns its output. A timeout is DeadlineExceeded, by which the kubelet
// tells a slow probe from a failed one.
func (s *Server) ExecSync(ctx context.Context, r *cri.ExecSyncRequest) (*cri.ExecSyncResponse, error) {
	if err := checkExecSync(r); err != nil {
		return nil, err
	}
	result, err := s.deps.Engine.ExecSync(ctx, r.GetContainerId(), r.GetCmd(), seconds(r.GetTimeout()))
	if err != nil {
		return nil, err
	}
	stdout, stderr := fitMessage(result.Stdout, result.Stderr)
	if result.Short {
		stderr = append(stderr, shortOutput...)
	}
	return &cri.ExecSyncResponse{Stdout: stdout, Stderr: stderr, ExitCode: result.Code}, nil
}

// shortOutput is added to stderr: the CRI has no field for it.
const shortOutput = "\npodd: this output is incomplete: the commands that run now print more than the budget " +
	"\"output of ExecSync\" allows, see `podd status`\n"

// fitMessage truncates the two outputs so that both fit into one message: the CRI limits each of them, and the message,
// to 16 MiB. Each gets half of the message, and the rest of the other's half.
func fitMessage(stdout, stderr []byte) (o, e []byte) {
	const limit = maxMessage - 1<<10 // the other fields take a few bytes
	stderr = stderr[:min(len(stderr), max(limit/2, limit-len(stdout)))]
	return stdout[:min(len(stdout), limit-len(stderr))], stderr
}
