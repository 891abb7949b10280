package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/runc/conmon"
)

// Delete kills the remaining processes of the container, removes it from the runtime, waits for the monitor, and
// removes cgroup and bundle. The runtime's delete is run if it may do more than podd. Delete is idempotent, and needs
// neither the runtime's state nor the monitor nor a complete bundle. After a failure, the rest is still there for the
// next call.
func (r *Runtime) Delete(ctx context.Context, id string) error {
	b, err := r.bundle(id)
	if err != nil {
		return err
	}
	if !b.Exists() && !r.runtimeKnows(id) {
		return nil
	}
	rec, err := b.load()
	if err != nil {
		// Never created completely, or damaged.
		rec = r.rebuildRecord(b)
	}
	if rec.pending() { // a restore was interrupted
		if err := r.undoCreate(b, true); err != nil {
			return fmt.Errorf("delete container %s: %w", id, err)
		}
	}
	if err := r.deleteContainer(ctx, b, rec); err != nil {
		return fmt.Errorf("delete container %s: %w", id, err)
	}
	return nil
}

func (r *Runtime) deleteContainer(ctx context.Context, b bundle, rec record) error {
	ctx, cancel := context.WithTimeout(ctx, process.KillTimeout+commandTimeout)
	defer cancel()
	if err := r.removeSubcontainer(ctx, b, rec); err != nil {
		return err
	}
	if err := killContainer(ctx, rec); err != nil {
		return err
	}
	if rec.Init == (process.Process{}) {
		// The runtime of an interrupted creation creates its cgroups one by one, until it is killed.
		rec.Cgroups = r.rebuildRecord(b).Cgroups
	}
	exit := readExitFile(b)
	r.describeLimits(b, rec, &exit) // before its cgroup is gone
	if err := rec.Cgroups.Kill(ctx); err != nil {
		return err
	}
	if err := r.unmountRestore(b, rec); err != nil {
		return err
	}
	var errRuntime error
	if !rec.isSubcontainer(b.ID()) && !r.removableByPodd(rec) { // the former is done already
		errRuntime = r.runtimeDelete(ctx, b.ID())
	}
	if err := waitMonitor(ctx, rec.Monitor); err != nil {
		return errors.Join(err, errRuntime)
	}
	blind := rec.Init == (process.Process{}) && len(rec.Cgroups) == 0
	if errRuntime != nil && (blind || ctx.Err() != nil) {
		return errRuntime
	}
	// Every process is gone. A runtime that still fails has damaged state, which is removed here.
	status := readExitFile(b) // the monitor has exited since
	status.OOM, status.OOMKills, status.ForksRefused = exit.OOM, exit.OOMKills, exit.ForksRefused
	r.waiters.Deliver(b.ID(), status)
	if err := r.removeState(b.ID()); err != nil {
		return err
	}
	// Destroy also kills processes that an interrupted creation has put into them since.
	if err := rec.Cgroups.Destroy(ctx); err != nil {
		return err // the next call finds the cgroups by the bundle
	}
	return r.removeBundle(ctx, b)
}

// removeBundle removes the container's directory. An interrupted ReopenLog may have left a mount in it.
func (r *Runtime) removeBundle(ctx context.Context, b bundle) error {
	unlock, err := r.logs.Lock(ctx, b.ID())
	if err != nil {
		return err
	}
	defer unlock()
	if err := conmon.ReleaseLog(b.Dir()); err != nil {
		return err
	}
	return os.RemoveAll(b.Dir())
}

// stateFiles are the files of the runtime's state of the container: a directory of runc and crun, files of runsc.
func (r *Runtime) stateFiles(id string) []string {
	files, _ := filepath.Glob(filepath.Join(r.cfg.Root, id+"_sandbox:*")) // the id has no special characters
	if dir := filepath.Join(r.cfg.Root, id); driver.FileExists(dir) {
		files = append(files, dir)
	}
	return files
}

// removeState removes the runtime's state of the container.
func (r *Runtime) removeState(id string) error {
	var errs []error
	for _, path := range r.stateFiles(id) {
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}

// runtimeKnows reports whether the runtime has state of the container.
func (r *Runtime) runtimeKnows(id string) bool { return len(r.stateFiles(id)) > 0 }

// killContainer kills the container's first process, or an incomplete creation: monitor, runtime, hooks.
func killContainer(ctx context.Context, rec record) error {
	rec.Cgroups.Thaw()
	if rec.Init != (process.Process{}) {
		return rec.Init.Kill(ctx)
	}
	if !rec.Monitor.Alive() {
		return nil
	}
	return rec.Monitor.KillTree(ctx)
}

// runtimeDelete runs `<runtime> delete`, then with --force if that fails: all known processes are dead by now, and
// runc's --force always sleeps 100 ms. An unknown container or a runtime that is no longer installed is not an error.
func (r *Runtime) runtimeDelete(ctx context.Context, id string) error {
	var err error
	for _, args := range [][]string{{"delete", id}, {"delete", "--force", id}} {
		_, err = r.runRuntime(ctx, nil, args...)
		if err == nil || errdefs.IsNotFound(err) || errdefs.IsUnavailable(err) {
			return nil
		}
	}
	return err
}

// monitorGrace is how long a monitor may take to write the remaining output and the exit status.
const monitorGrace = 5 * time.Second

// waitMonitor waits until the monitor exits after its container has, and kills it after monitorGrace: a disk that
// hangs must not block the removal of the container.
func waitMonitor(ctx context.Context, m process.Process) error {
	grace, cancel := context.WithTimeout(ctx, monitorGrace)
	defer cancel()
	if err := m.Wait(grace); err == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return m.Kill(ctx)
}

// rebuildRecord returns the record of a container without one, as far as it can be found: its monitor, and the cgroup
// in its config.json.
func (r *Runtime) rebuildRecord(b bundle) record {
	var rec record
	if m, ok := findMonitor(b); ok {
		rec.Monitor = m
	}
	s, err := b.spec()
	if err != nil || s.Linux == nil {
		return rec
	}
	rec.Sandbox = s.Annotations[sandboxAnnotation]
	if !r.cfg.SystemdCgroup { // systemd removes its scopes by itself
		rec.Cgroups = cgroups.DirsAt(s.Linux.CgroupsPath)
	}
	return rec
}
