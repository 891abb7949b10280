package shim

import (
	"context"
	"fmt"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
)

// ExecSync runs a command in a running container and returns its output and exit code. It returns when the command has
// exited, even if a child of it holds the output open.
//
// After req.Timeout, or when ctx ends, the command is killed (with all descendants, where the sandbox shows them to
// the host), the output so far is returned, and the error wraps context.DeadlineExceeded or ctx's cause. A command
// that cannot be run is an oci.ErrCommand. A container that is paused or not running gives
// errdefs.ErrFailedPrecondition.
func (r *Runtime) ExecSync(ctx context.Context, req oci.ExecRequest) (oci.ExecResult, error) {
	ctx, cancel, limit := driver.ExecLimits(ctx, req)
	defer cancel()
	s, rec, err := r.newSession(ctx, req.ID, req.Process, false)
	if err != nil {
		return oci.ExecResult{}, err
	}
	defer s.closeFiles()
	stdout, stderr := driver.Collect(s.stdout, limit, req.Grow), (*driver.Collector)(nil)
	if s.stderr != nil {
		stderr = driver.Collect(s.stderr, limit, req.Grow)
	}
	var result oci.ExecResult
	if err = s.startCommand(ctx, req.Process, rec.Shim); err == nil {
		result.Code, err = s.waitExit(ctx, s.killCommand)
	}
	s.limitOutput()
	result.Stdout, result.Short = stdout.Bytes(), stdout.Short()
	if stderr != nil {
		result.Stderr, result.Short = stderr.Bytes(), result.Short || stderr.Short()
	}
	if err != nil {
		return result, fmt.Errorf("exec: %w", err)
	}
	return result, nil
}
