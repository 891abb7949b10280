package shim

import (
	"context"
	"os"
	"path/filepath"
	"syscall"

	task "github.com/containerd/containerd/api/runtime/task/v2"
)

// A daemon that dies leaves the commands that it was running: nobody reads what they print, and they would wait for that
// for ever, as would the probe after them if the container takes one at a time.

// sweep ends the commands in the container that no session of this daemon is connected to.
func (r *Runtime) sweepCommands(ctx context.Context, b bundle, conn *conn) {
	dirs, _ := filepath.Glob(b.File(sessionPrefix + "*"))
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || r.hasSession(dir) {
			continue
		}
		execID := filepath.Base(dir)
		_ = conn.call(ctx, "Kill", &task.KillRequest{ID: b.ID(), ExecID: execID, Signal: uint32(syscall.SIGKILL)}, empty())
		// It may have been killed, or ended, before: then this says so.
		if _, err := conn.waitExit(ctx, b.ID(), execID); err == nil {
			_ = conn.call(ctx, "Delete", &task.DeleteRequest{ID: b.ID(), ExecID: execID}, &task.DeleteResponse{})
		}
		if ctx.Err() != nil {
			return
		}
		_ = os.RemoveAll(dir)
	}
}

// sessionPrefix begins the names of the directories of sessions.
const sessionPrefix = "exec-"

// serves tells whether a session of this daemon uses the directory.
func (r *Runtime) hasSession(dir string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[dir]
}

// openSession makes a directory for a session. It is noted before anybody can take it for a dead daemon's.
func (r *Runtime) openSession(b bundle) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	dir, err := os.MkdirTemp(b.Dir(), sessionPrefix) // 0700
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

// logLimit is how large a shim's log may become in the run directory, which is memory.
const logLimit = 1 << 20

// trimLog empties a shim's log that has become too large.
func trimLog(b bundle) {
	info, err := os.Lstat(b.log())
	if err != nil || !info.Mode().IsRegular() {
		return
	}
	// Blocks, not size: the shim goes on writing where it was, and leaves a hole.
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Blocks*512 > logLimit {
		_ = os.Truncate(b.log(), 0)
	}
}
