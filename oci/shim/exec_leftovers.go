package shim

import (
	"context"
	"os"
	"path/filepath"
	"syscall"

	task "github.com/containerd/containerd/api/runtime/task/v2"

	"github.com/podd-project/podd/oci"
)

// A daemon that dies leaves the commands that it was running. No process reads their output, so they would block
// forever, as would the next probe if the container takes one at a time.

// sweepCommands kills the commands in the container that no session of this daemon is connected to.
func (r *Runtime) sweepCommands(ctx context.Context, b bundle, conn *conn) {
	dirs, _ := filepath.Glob(b.File(sessionPrefix + "*"))
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || r.hasSession(dir) {
			continue
		}
		execID := filepath.Base(dir)
		_ = conn.call(ctx, "Kill", &task.KillRequest{ID: b.ID(), ExecID: execID, Signal: uint32(syscall.SIGKILL)}, empty())
		// It may have been killed, or have exited, before: then this returns at once.
		if _, err := conn.waitExit(ctx, b.ID(), execID); err == nil {
			_ = conn.call(ctx, "Delete", &task.DeleteRequest{ID: b.ID(), ExecID: execID}, &task.DeleteResponse{})
		}
		if ctx.Err() != nil {
			return
		}
		_ = os.RemoveAll(dir)
	}
}

// sessionPrefix is the prefix of the names of sessions' directories.
const sessionPrefix = "exec-"

// hasSession reports whether a session of this daemon uses the directory.
func (r *Runtime) hasSession(dir string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[dir]
}

// openSession creates a directory for a session. It is registered under the lock, so that sweepCommands does not take
// it for a dead daemon's.
func (r *Runtime) openSession(ctx context.Context, b bundle) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	dir, err := os.MkdirTemp(b.Dir(), sessionPrefix+oci.Request(ctx)+"-*") // 0700
	if err == nil {
		r.sessions[dir] = true
	}
	return dir, err
}

func (r *Runtime) closeSession(dir string) {
	_ = os.RemoveAll(dir)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sessions, dir)
}

// logLimit is the largest size of a shim's log in the run directory, which is in memory.
const logLimit = 1 << 20

// trimLog truncates a shim's log that has become too large.
func trimLog(b bundle) {
	info, err := os.Lstat(b.log())
	if err != nil || !info.Mode().IsRegular() {
		return
	}
	// Blocks, not size: the shim continues to write at its old offset, and leaves a hole.
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Blocks*512 > logLimit {
		_ = os.Truncate(b.log(), 0)
	}
}
