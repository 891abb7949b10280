package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/logfile"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/program"
	"github.com/podd-project/podd/oci/shim/stdio"
)

// startStdio starts the process that holds the container's output.
func (r *Runtime) startStdio(ctx context.Context, b bundle) (process.Process, error) {
	if r.cfg.Stdio == "" {
		return process.Process{}, fmt.Errorf("handler %s: no stdio program: %w: %w", r.cfg.Name, program.ErrNotBuilt,
			errdefs.ErrUnavailable)
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CallTimeout)
	defer cancel()
	pid, err := stdio.Start(ctx, r.cfg.Stdio, b.Dir())
	if err != nil {
		return process.Process{}, err
	}
	return process.Identify(pid)
}

// superviseStdio restarts the container's stdio process when it dies before the end of the output, for example by the
// OOM killer: the container would block on a full pipe. A restart that fails is repeated: the output waits in the pipe,
// which the shim holds open. A stdio process that receives events is needed as long as the shim runs. It returns when
// ctx ends.
func (r *Runtime) superviseStdio(ctx context.Context, b bundle) {
	for delay := restartPause; ctx.Err() == nil; {
		rec, err := b.load()
		if err != nil || rec.Stdio.Wait(ctx) != nil || !rec.Shim.Alive() {
			return
		}
		if stdio.OutputDone(b.Dir()) && rec.Owner != b.ID() {
			return
		}
		err = r.restartStdio(ctx, b, rec.Stdio)
		switch {
		case err == nil:
			delay = restartPause
			continue
		case ctx.Err() != nil || !b.Exists():
			return
		}
		r.cfg.Log.WithError(err).WithField("container", b.ID()).WithField("retry", delay).Error(
			"failed to restart the stdio process of a container, whose output waits, trying again")
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		}
		delay = min(2*delay, maxRestartPause)
	}
}

// restartPause is the delay before the second attempt to restart a stdio process; it doubles up to maxRestartPause.
const (
	restartPause    = time.Second
	maxRestartPause = time.Minute
)

// restartStdio starts a stdio process in place of a dead one, unless another call has.
func (r *Runtime) restartStdio(ctx context.Context, b bundle, dead process.Process) error {
	unlock, err := r.stdioLocks.Lock(ctx, b.ID())
	if err != nil {
		return err
	}
	defer unlock()
	rec, err := b.load()
	if err != nil || rec.Stdio != dead {
		return err
	}
	r.cfg.Log.WithField("container", b.ID()).Warn("stdio process of a container died, restarting it")
	if rec.Stdio, err = r.startStdio(ctx, b); err != nil {
		return err
	}
	return b.save(rec)
}

// stdioGrace is how long a stdio process may take to write the remaining output: a child of the exited container may
// hold it open, or a disk may be slow.
const stdioGrace = 5 * time.Second

// waitStdio waits until the output of an exited container is written, for up to stdioGrace.
func waitStdio(ctx context.Context, b bundle, rec record) {
	ctx, cancel := context.WithTimeout(ctx, stdioGrace)
	defer cancel()
	pause := time.Millisecond
	for ; !stdio.OutputDone(b.Dir()) && currentStdio(b, rec).Alive(); pause = min(2*pause, stdioPollPause) {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// currentStdio is the container's stdio process: the one in rec may have died and been replaced.
func currentStdio(b bundle, rec record) process.Process {
	if now, err := b.load(); err == nil {
		return now.Stdio
	}
	return rec.Stdio
}

// stdioPollPause is the longest interval of polling for the end of the output.
const stdioPollPause = 50 * time.Millisecond

// killStdio kills the container's stdio process, the recorded one and any other of the bundle: a daemon may have died
// before it recorded one. The program is found by its name on disk.
func killStdio(ctx context.Context, b bundle, rec record) error {
	locals, err := process.Locals()
	errs := []error{rec.Stdio.Kill(ctx), err}
	for _, p := range locals {
		if filepath.Base(p.Program) != stdioName {
			continue
		}
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.Pid))
		if err == nil && strings.HasSuffix(string(line), "/"+stdioName+"\x00"+b.Dir()+"\x00") {
			errs = append(errs, p.Kill(ctx))
		}
	}
	return errors.Join(errs...)
}

// ReopenLog makes the stdio process continue in a new log file after the old one was moved away, and returns when it
// does. A log that was not moved is left alone. A container that has exited gives errdefs.ErrFailedPrecondition and no
// new file.
func (r *Runtime) ReopenLog(ctx context.Context, id string) error {
	b, rec, err := r.open(id)
	if err != nil {
		return err
	}
	if _, ended := b.loadExit(); ended || !rec.Shim.Alive() || !rec.Stdio.Alive() {
		return fmt.Errorf("container %s is not running: %w", id, errdefs.ErrFailedPrecondition)
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CallTimeout)
	defer cancel()
	if err := reopenLog(ctx, b); err != nil {
		return fmt.Errorf("reopen log of container %s: %w", id, err)
	}
	return nil
}

func reopenLog(ctx context.Context, b bundle) error {
	cfg, err := stdio.Load(b.Dir())
	if err != nil || cfg.Log == (logfile.Log{}) {
		return err
	}
	f, err := cfg.Log.Open() // for the error: the process opens it for itself
	if err != nil {
		return err
	}
	f.Close()
	return stdio.Reopen(ctx, b.Dir())
}
