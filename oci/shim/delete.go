package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	status "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/process"
)

func empty() *emptypb.Empty { return &emptypb.Empty{} }

const (
	// killTimeout bounds how long a killed container may take to exit.
	killTimeout = 10 * time.Second
	// shutdownGrace is how long a shim may take to exit when asked to.
	shutdownGrace = 3 * time.Second
	// createdGrace is how long a shim may take to delete a container that was not started.
	createdGrace = time.Second
	// deleteTimeout bounds one Delete.
	deleteTimeout = time.Minute
)

// Delete kills the remaining processes of the container, makes the shim delete it, stops the shim if it is the
// container's own, and removes the stdio process, cgroups and bundle. It is idempotent and needs neither the shim nor a
// complete bundle. After a failure, the rest is still there for the next call.
func (r *Runtime) Delete(ctx context.Context, id string) error {
	b, err := r.bundle(id)
	if err != nil {
		return err
	}
	if !b.Exists() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	rec, err := b.load()
	if err != nil {
		rec = b.rebuildRecord()
	}
	if err := r.endContainer(ctx, b, rec); err != nil {
		return fmt.Errorf("delete container %s: %w", id, err)
	}
	r.removeState(id)
	err = os.RemoveAll(b.Dir())
	for range 2 { // a call of Wait may be writing the exit status
		if err != nil {
			err = os.RemoveAll(b.Dir())
		}
	}
	if err != nil {
		return fmt.Errorf("delete container %s: %w", id, err)
	}
	return nil
}

// removeState removes the state that gVisor's runtime leaves of a container whose sandbox was gone before the
// container was deleted. Errors are ignored: such state does no harm.
func (r *Runtime) removeState(id string) {
	// An id has no special characters.
	files, _ := filepath.Glob(filepath.Join(r.runtimeRoot(), namespace, id+"_sandbox:*"))
	for _, file := range files {
		_ = os.Remove(file)
	}
}

// endContainer kills and removes everything of the container but its bundle.
func (r *Runtime) endContainer(ctx context.Context, b bundle, rec record) error {
	err := r.deleteTask(ctx, b, rec)
	unstarted := errors.Is(err, errUnstarted)
	if err != nil {
		// The shim is gone, hangs or fails. A pod's shim that hangs does so for the whole pod.
		if errors.Is(err, context.DeadlineExceeded) && !unstarted || rec.Owner == b.ID() {
			if err := rec.Shim.Kill(ctx); err != nil {
				return err
			}
		}
		if rec.Address != "" || rec.Version == 0 {
			// Without a shim there may be nothing to delete. Killing the processes below shows whether that matters.
			_ = r.shimDelete(ctx, b)
		}
	}
	if rec.Owner == b.ID() {
		if err := r.stopShim(ctx, b, rec); err != nil {
			return err
		}
	}
	if err := killContainer(ctx, rec); err != nil {
		return err
	}
	if rec.Init != (process.Process{}) && !unstarted { // otherwise the pipes never reach EOF
		waitStdio(ctx, b, rec)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return killStdio(ctx, b, rec)
}

// errUnstarted means that the shim does not finish deleting a container that was not started: gVisor's waits for the
// end of its output, which no process holds.
var errUnstarted = errors.New("the shim does not delete a container that was not started")

// deleteTask kills the container and has the shim delete it.
func (r *Runtime) deleteTask(ctx context.Context, b bundle, rec record) error {
	conn, err := r.connectShim(ctx, rec)
	if err != nil {
		return err
	}
	exit, created, err := r.killTask(ctx, conn, b)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	r.killLeftovers(rec) // the shim waits for the end of their output
	limited := ctx
	if created {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, createdGrace)
		defer cancel()
	}
	err = conn.call(limited, "Delete", &task.DeleteRequest{ID: b.ID()}, &task.DeleteResponse{})
	if errdefs.IsNotFound(err) {
		return nil
	}
	if created && err != nil && ctx.Err() == nil {
		err = errors.Join(errUnstarted, err)
	}
	if err == nil || created {
		r.describeLimits(b, rec, &exit)
		r.waiters.Deliver(b.ID(), exit)
	}
	return err
}

// killTask kills the container and waits for its exit. One that was not started exits only when it is deleted.
// errdefs.ErrNotFound if the shim does not know it.
func (r *Runtime) killTask(ctx context.Context, conn *conn, b bundle) (exit oci.Exit, created bool, err error) {
	id := b.ID()
	if _, err := os.Lstat(b.unstarted()); err == nil { // it was killed before; its exit status is unknown
		return killedUnstarted(), true, nil
	}
	state := &task.StateResponse{}
	if err := conn.call(ctx, "State", &task.StateRequest{ID: id}, state); err != nil {
		return exit, false, err
	}
	if s := state.GetStatus(); s == status.Status_PAUSED || s == status.Status_PAUSING { // a frozen process does not die
		if err := conn.call(ctx, "Resume", &task.ResumeRequest{ID: id}, empty()); err != nil {
			return exit, false, err
		}
	}
	err = conn.call(ctx, "Kill", &task.KillRequest{ID: id, Signal: uint32(syscall.SIGKILL), All: true}, empty())
	if err != nil && !isProcessGone(err) {
		return exit, false, err
	}
	if state.GetStatus() == status.Status_CREATED {
		return killedUnstarted(), true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	response, err := conn.waitExit(ctx, id, "")
	if err != nil {
		return exit, false, err
	}
	return parseExit(response.GetExitStatus(), response.GetExitedAt()), false, nil
}

// stopShim asks the shim that runs in the bundle to exit, then kills it.
func (r *Runtime) stopShim(ctx context.Context, b bundle, rec record) error {
	if conn, err := r.connectShim(ctx, rec); err == nil {
		// It may exit before it answers.
		_ = conn.call(ctx, "Shutdown", &task.ShutdownRequest{ID: b.ID(), Now: true}, empty())
		grace, cancel := context.WithTimeout(ctx, shutdownGrace)
		_ = rec.Shim.Wait(grace)
		cancel()
	}
	r.disconnectShim(rec.Address)
	if err := killBundleProcesses(ctx, b); err != nil {
		return err
	}
	if err := rec.Shim.Kill(ctx); err != nil {
		return err
	}
	if rec.Address == "" {
		return nil
	}
	return removeSocket(rec.Address)
}

// rebuildRecord returns the record of a container without a readable one, as far as it can be found: the address of a
// shim that is alive, and the cgroup in config.json. Processes in the bundle are found without a record.
func (b bundle) rebuildRecord() record {
	rec := record{Owner: b.ID(), Address: listeningSocket(b)}
	var s specs.Spec
	data, err := os.ReadFile(b.Config())
	if err == nil && json.Unmarshal(data, &s) == nil {
		rec.Cgroup = ownCgroup(&s)
	}
	return rec
}
