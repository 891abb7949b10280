package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/logfile"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/runc/conmon"
)

// reopenTimeout bounds the monitor's answer. It may be writing to a slow disk.
const reopenTimeout = 10 * time.Second

// ReopenLog makes the monitor continue in a new log file after the old one was moved away, and returns when it does. A
// log that was not moved is left alone. Errors: those of logfile.Log.Open; errdefs.ErrFailedPrecondition, and no new
// file, if the container or its monitor has exited.
func (r *Runtime) ReopenLog(ctx context.Context, id string) error {
	b, err := r.bundle(id)
	if err != nil {
		return err
	}
	unlock, err := r.logs.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	rec, err := b.load()
	if err != nil {
		return err
	}
	if !rec.Init.Alive() {
		return fmt.Errorf("container %s is not running: %w", id, errdefs.ErrFailedPrecondition)
	}
	if !rec.Monitor.Alive() {
		return fmt.Errorf("conmon of container %s died, its output is no longer logged: create the container again: %w", id,
			errdefs.ErrFailedPrecondition)
	}
	ctx, cancel := context.WithTimeout(ctx, reopenTimeout)
	defer cancel()
	if err := reopenLog(ctx, b, rec); err != nil {
		return fmt.Errorf("reopen log of container %s: %w", id, err)
	}
	return nil
}

func reopenLog(ctx context.Context, b bundle, rec record) error {
	if rec.Log == (logfile.Log{}) {
		return nil
	}
	log, err := rec.Log.Open()
	if err != nil {
		return err
	}
	defer log.Close()
	if hasOpen(rec.Monitor.Pid, log) {
		return conmon.FinishReopen(b.Dir())
	}
	if !conmon.SeesMounts(rec.Monitor.Pid) {
		return fmt.Errorf("conmon is in another mount namespace than podd: %w", errdefs.ErrFailedPrecondition)
	}
	if err := conmon.Reopen(b.Dir(), log); err != nil {
		return err
	}
	return errors.Join(awaitOpen(ctx, rec.Monitor, log), conmon.FinishReopen(b.Dir()))
}

// awaitOpen waits until the monitor has the file open.
func awaitOpen(ctx context.Context, monitor process.Process, f *os.File) error {
	err := process.Poll(ctx, func() bool { return hasOpen(monitor.Pid, f) || !monitor.Alive() })
	if err == nil && !hasOpen(monitor.Pid, f) {
		err = fmt.Errorf("container has exited: %w", errdefs.ErrFailedPrecondition)
	}
	return err
}

// hasOpen reports whether the process has the file open.
func hasOpen(pid int, f *os.File) bool {
	want, err := f.Stat()
	if err != nil {
		return false
	}
	fds := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(fds)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if have, err := os.Stat(filepath.Join(fds, e.Name())); err == nil && os.SameFile(have, want) {
			return true
		}
	}
	return false
}
