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
	// killTimeout bounds how long a killed container may take to go.
	killTimeout = 10 * time.Second
	// shutdownGrace is how long a shim may take to end when it is asked to.
	shutdownGrace = 3 * time.Second
	// createdGrace is how long a shim may take to delete a container that was not started.
	createdGrace = time.Second
	// deleteTimeout bounds one Delete.
	deleteTimeout = time.Minute
)

// Delete kills what is left of the container, has the shim forget it, ends the shim if it is the container's own, and
// removes the keeper, control groups and bundle. It can be repeated, needs neither the shim nor a complete bundle, and
// is no error for a container that does not exist. When it fails, whatever could not be removed is still there for
// the next call.
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

// removeState removes what gVisor's runtime leaves of the state of a container whose sandbox was gone before it was deleted.
// What cannot be removed is in nobody's way.
func (r *Runtime) removeState(id string) {
	files, _ := filepath.Glob(filepath.Join(r.runtimeRoot(), namespace, id+"_sandbox:*")) // an id has no special characters
	for _, file := range files {
		_ = os.Remove(file)
	}
}

// end ends everything of the container but its bundle.
func (r *Runtime) endContainer(ctx context.Context, b bundle, rec record) error {
	err := r.deleteTask(ctx, b, rec)
	unstarted := errors.Is(err, errUnstarted)
	if err != nil {
		// The shim is gone, hangs or refuses. One that is the pod's hangs for the whole pod.
		if errors.Is(err, context.DeadlineExceeded) && !unstarted || rec.Owner == b.ID() {
			if err := rec.Shim.Kill(ctx); err != nil {
				return err
			}
		}
		if rec.Address != "" || rec.Version == 0 {
			// Without a shim there may be nothing to delete either: killing shows whether that matters.
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
	if rec.Init != (process.Process{}) && !unstarted { // else nothing comes through the pipes, not even their end
		waitStdio(ctx, b, rec)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return killStdio(ctx, b, rec)
}

// errUnstarted says that the shim does not come to an end with deleting a container that was not started: gVisor's
// waits for the end of its output, which no process holds.
var errUnstarted = errors.New("the shim does not delete a container that was not started")

// forgetTask kills the container and has the shim forget it.
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
		exit.OOM = oomKilled(b, rec)
		r.waiters.Deliver(b.ID(), exit)
	}
	return err
}

// killTask kills the container and waits for its end; one that was created only ends when it is deleted.
// errdefs.ErrNotFound when the shim does not know it.
func (r *Runtime) killTask(ctx context.Context, conn *conn, b bundle) (exit oci.Exit, created bool, err error) {
	id := b.ID()
	if _, err := os.Lstat(b.unstarted()); err == nil { // it was killed before; nothing can be said of its end
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

// endShim ends the shim that works in the bundle, kindly and then not.
func (r *Runtime) stopShim(ctx context.Context, b bundle, rec record) error {
	if conn, err := r.connectShim(ctx, rec); err == nil {
		// It may end before it answers.
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

// reconstruct finds what it can of a container without a record, or with one that cannot be read: what works in the
// bundle is found anyway, a shim that lives tells by its socket where that is to be removed, and config.json tells the
// control groups.
func (b bundle) rebuildRecord() record {
	rec := record{Owner: b.ID(), Address: listeningSocket(b)}
	var s specs.Spec
	data, err := os.ReadFile(b.Config())
	if err == nil && json.Unmarshal(data, &s) == nil {
		rec.Cgroup = ownCgroup(&s)
	}
	return rec
}
