package shim

import (
	"context"
	"fmt"
	"sync"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/shim/fifo"
)

// defaultExecLimit is the cap on each stream when the caller names none.
const defaultExecLimit = 16 << 20

// ExecSync runs one command in a running container and returns its output and exit status. It returns when the command
// has ended, even if a child of it holds the output open.
//
// After req.Timeout, or when ctx ends, the command is killed (with all descendants, where the sandbox shows them to the
// host), what was printed is returned, and the error wraps context.DeadlineExceeded or ctx's cause. A command that
// cannot be run is an oci.ErrCommand; a container that does not run or is paused gives errdefs.ErrFailedPrecondition.
func (r *Runtime) ExecSync(ctx context.Context, req oci.ExecRequest) (oci.ExecResult, error) {
	if req.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, req.Timeout)
		defer cancel()
	}
	limit := req.Limit
	if limit <= 0 {
		limit = defaultExecLimit
	}
	s, rec, err := r.newSession(ctx, req.ID, req.Process, false)
	if err != nil {
		return oci.ExecResult{}, err
	}
	defer s.close()
	stdout, stderr := &collector{limit: limit}, &collector{limit: limit}
	stdout.read(s.stdout)
	if s.stderr != nil {
		stderr.read(s.stderr)
	}
	var result oci.ExecResult
	if err = s.start(ctx, req.Process, rec.Shim); err == nil {
		result.Code, err = s.wait(ctx)
	}
	s.finish()
	result.Stdout, result.Stderr = stdout.result(), stderr.result()
	if err != nil {
		return result, fmt.Errorf("exec: %w", err)
	}
	return result, nil
}

// collector keeps the first bytes of an output and drops the rest.
type collector struct {
	limit   int64
	data    []byte
	reading sync.WaitGroup
}

func (c *collector) read(from *fifo.Reader) {
	c.reading.Go(func() {
		_ = copyOutput(func(p []byte) error { // memory takes everything
			c.data = append(c.data, p[:min(int64(len(p)), max(c.limit-int64(len(c.data)), 0))]...)
			return nil
		}, from)
	})
}

func (c *collector) result() []byte {
	c.reading.Wait()
	return c.data
}
