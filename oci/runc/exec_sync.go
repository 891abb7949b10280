package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/podd-project/podd/oci"
)

// defaultExecLimit is the cap on each stream when the caller names none.
const defaultExecLimit = 16 << 20

// drainTime is how long the output is still read after the command has ended: what it wrote is in the pipe
// already, but a child that it left behind may hold the pipe open for ever.
const drainTime = time.Second

// ExecSync runs one command in a running container and returns its output and exit status. It returns when
// the command has ended, even if a child of it holds the output open.
//
// After req.Timeout, or when ctx ends, the command and all its descendants are killed, what was printed is
// returned, and the error wraps context.DeadlineExceeded or ctx's cause. A command that cannot be run is an
// ErrCommand; a container that does not run or is paused gives errdefs.ErrFailedPrecondition.
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
	out, err := newOutput(limit)
	if err != nil {
		return oci.ExecResult{}, err
	}
	defer out.close()
	cmd, err := r.launch(ctx, req.ID, req.Process, [3]*os.File{nil, out.stdout.w, out.stderr.w}, req.Timeout > 0)
	if err != nil {
		return oci.ExecResult{}, err
	}
	out.read()
	code, err := cmd.wait(ctx)
	result := oci.ExecResult{Code: code}
	result.Stdout, result.Stderr = out.drain()
	if errors.Is(err, errNotStarted) {
		// Nothing but the runtime has written: its complaint is not the command's output.
		return oci.ExecResult{}, failure("exec", complaint(result.Stderr))
	}
	if err != nil {
		return result, fmt.Errorf("exec: %w", err)
	}
	return result, nil
}

// output collects what a command prints.
type output struct{ stdout, stderr *collector }

// collector reads a pipe to its end in one goroutine, keeping the first bytes.
type collector struct {
	r, w *os.File
	kept capped
	done chan struct{}
}

func newOutput(limit int64) (*output, error) {
	stdout, err := newCollector(limit)
	if err != nil {
		return nil, err
	}
	stderr, err := newCollector(limit)
	if err != nil {
		stdout.close()
		return nil, err
	}
	return &output{stdout, stderr}, nil
}

func newCollector(limit int64) (*collector, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("output pipe: %w", err)
	}
	return &collector{r: r, w: w, kept: capped{limit: limit}, done: make(chan struct{})}, nil
}

// read begins to read; the write ends are the command's alone now.
func (o *output) read() {
	for _, c := range []*collector{o.stdout, o.stderr} {
		c.w.Close()
		go func() {
			defer close(c.done)
			_ = copyPipe(&c.kept, c.r) // memory takes everything
		}()
	}
}

// drain gives the readers a moment to come to the end, and returns what they have.
func (o *output) drain() (stdout, stderr []byte) {
	end := time.Now().Add(drainTime)
	for _, c := range []*collector{o.stdout, o.stderr} {
		_ = c.r.SetReadDeadline(end)
		<-c.done
	}
	return o.stdout.kept.buf.Bytes(), o.stderr.kept.buf.Bytes()
}

func (o *output) close() {
	o.stdout.close()
	o.stderr.close()
}

func (c *collector) close() {
	c.w.Close()
	c.r.Close()
}
