package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
)

// ExecSync runs a command in a running container and returns its output and exit code. It returns when the command has
// exited, even if a child of it holds the output open.
//
// After req.Timeout, or when ctx ends, the command and all its descendants are killed, the output so far is returned,
// and the error wraps context.DeadlineExceeded or ctx's cause. A command that cannot be run is an oci.ErrCommand. A
// container that is paused or not running gives errdefs.ErrFailedPrecondition.
func (r *Runtime) ExecSync(ctx context.Context, req oci.ExecRequest) (oci.ExecResult, error) {
	if err := r.awaitDump(ctx, req.ID); err != nil {
		return oci.ExecResult{}, err
	}
	ctx, cancel, limit := driver.ExecLimits(ctx, req)
	defer cancel()
	out, err := newOutput()
	if err != nil {
		return oci.ExecResult{}, err
	}
	defer out.close()
	cmd, err := r.launchCommand(ctx, req.ID, req.Process, [3]*os.File{nil, out.stdout.w, out.stderr.w},
		r.cfg.ExecCgroups || req.Timeout > 0)
	if err != nil {
		return oci.ExecResult{}, err
	}
	out.collect(limit, req.Grow)
	code, err := cmd.waitExit(ctx, cmd.killAll)
	result := oci.ExecResult{Code: code}
	result.Stdout, result.Stderr = out.drainOutput()
	result.Short = out.stdout.collector.Short() || out.stderr.collector.Short()
	if errors.Is(err, errNotStarted) {
		// Only the runtime has written: this is its message, not the command's output.
		return oci.ExecResult{}, cmd.notStarted(result.Stderr)
	}
	if err != nil {
		return result, fmt.Errorf("exec: %w", err)
	}
	return result, nil
}

// output collects the output of a command.
type output struct{ stdout, stderr *pipe }

// pipe is a pipe that a command writes to.
type pipe struct {
	r, w      *os.File
	collector *driver.Collector
}

func newOutput() (*output, error) {
	stdout, err := newPipe()
	if err != nil {
		return nil, err
	}
	stderr, err := newPipe()
	if err != nil {
		stdout.close()
		return nil, err
	}
	return &output{stdout, stderr}, nil
}

func newPipe() (*pipe, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("output pipe: %w", err)
	}
	return &pipe{r: r, w: w}, nil
}

// collect starts to read. The command must have been started: its ends are closed here.
func (o *output) collect(limit int64, grow func(n int64) error) {
	for _, p := range []*pipe{o.stdout, o.stderr} {
		p.w.Close()
		p.collector = driver.Collect(p.r, limit, grow)
	}
}

// drainOutput reads until driver.DrainTime is over, and returns the output that was kept.
func (o *output) drainOutput() (stdout, stderr []byte) {
	end := time.Now().Add(driver.DrainTime)
	_ = o.stdout.r.SetReadDeadline(end)
	_ = o.stderr.r.SetReadDeadline(end)
	return o.stdout.collector.Bytes(), o.stderr.collector.Bytes()
}

func (o *output) close() {
	o.stdout.close()
	o.stderr.close()
}

func (p *pipe) close() {
	p.r.Close()
	p.w.Close()
}
