package runc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/runc/conmon"
)

// reopenTimeout bounds the monitor's answer. It syncs the old file first, which may take long on a slow disk.
const reopenTimeout = 10 * time.Second

// ReopenLog has the monitor continue in a new log file after the old one was moved away, and returns when it does. A
// log that was not moved is left alone: conmon would replace it. A container that has exited gives
// errdefs.ErrFailedPrecondition and no new file.
func (r *Runtime) ReopenLog(ctx context.Context, id string) error {
	b, err := r.bundle(id)
	if err != nil {
		return err
	}
	rec, err := b.load()
	if err != nil {
		return err
	}
	path, err := monitorLogPath(rec.Monitor.Pid)
	if !rec.Init.Alive() || !rec.Monitor.Alive() {
		return fmt.Errorf("container %s is not running: %w", id, errdefs.ErrFailedPrecondition)
	}
	if err != nil {
		return err
	}
	if path == "" || hasOpen(rec.Monitor.Pid, path) {
		return nil
	}
	if err := prepareLog(path); err != nil {
		return fmt.Errorf("reopen log of container %s: %w", id, err)
	}
	if err := conmon.Reopen(b.Dir()); err != nil {
		return fmt.Errorf("reopen log of container %s: %w", id, err)
	}
	ctx, cancel := context.WithTimeout(ctx, reopenTimeout)
	defer cancel()
	err = process.Poll(ctx, func() bool { return hasOpen(rec.Monitor.Pid, path) || !rec.Monitor.Alive() })
	if err != nil {
		return fmt.Errorf("reopen log of container %s: %w", id, err)
	}
	if !hasOpen(rec.Monitor.Pid, path) {
		return fmt.Errorf("container %s ended meanwhile: %w", id, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// prepareLog creates the file that the monitor opens next and renames to path. conmon exits if it cannot open it, and
// the container would lose its monitor to a missing directory or a full disk.
//
// An existing file is removed: conmon follows symbolic links, and would truncate, as root, any file that a pod with
// write access to the log directory links to.
func prepareLog(path string) error {
	if err := os.Remove(path + ".tmp"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// monitorLogPath returns the monitor's log, from its command line; empty if it discards the output.
func monitorLogPath(monitor int) (string, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(monitor) + "/cmdline")
	if err != nil {
		return "", fmt.Errorf("command line of conmon: %w", err)
	}
	args := strings.Split(string(b), "\x00")
	for i, a := range args[:len(args)-1] {
		if a == "--log-path" {
			path, _ := strings.CutPrefix(args[i+1], "k8s-file:")
			if path == args[i+1] {
				return "", nil
			}
			return path, nil
		}
	}
	return "", errors.New("conmon was started without a log path")
}

// checkLogFile refuses a log that the monitor has not opened at path itself. conmon follows symbolic links: a file
// that is replaced with a link after the path was checked would have root write anywhere (CVE-2025-0750). Nothing is
// written before the container starts.
func checkLogFile(monitor process.Process, path string) error {
	if path == "" || hasOpen(monitor.Pid, path) {
		return nil
	}
	return fmt.Errorf("the monitor has opened another file than %s: %w", path, errdefs.ErrFailedPrecondition)
}

// hasOpen reports whether the process has the file at path open. A symbolic link is not that file.
func hasOpen(pid int, path string) bool {
	want, err := os.Lstat(path)
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
