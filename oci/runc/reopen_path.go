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

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/logfile"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/runc/conmon"
)

// reopenByPath is reopenLog for a container of an earlier podd. Its monitor has the log's own path, and opens
// <log>.tmp, following symbolic links. The path is checked before, and the opened file after: a monitor that has opened
// another one is killed, before the container can write much there. Between the two, a container with write access to
// the log directory can have the monitor truncate a file of the node. Nothing but a new container closes this window.
func reopenByPath(ctx context.Context, b bundle, rec record) error {
	path, err := monitorLogPath(rec.Monitor.Pid)
	if err != nil || path == "" {
		return err
	}
	dir, err := existingDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	if !writesIn(rec.Monitor.Pid, dir.Path) {
		return fmt.Errorf("%s is not the directory in which the container's log was created, now or before: create the "+
			"container again: %w", filepath.Dir(path), errdefs.ErrFailedPrecondition)
	}
	log := logfile.Log{Dir: dir, Name: filepath.Base(path)}
	old, err := log.Open()
	if err != nil {
		return err
	}
	defer old.Close()
	if hasOpen(rec.Monitor.Pid, old) {
		return nil
	}
	if err := os.Remove(path + ".tmp"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	log.Name += ".tmp"
	next, err := log.Open()
	if err != nil {
		return err
	}
	defer next.Close()
	if err := conmon.ReopenByPath(b.Dir()); err != nil {
		return err
	}
	return awaitNext(ctx, rec.Monitor, next, path)
}

// existingDir notes the directory of a log that was not noted when the pod was created.
func existingDir(path string) (logfile.Dir, error) {
	if _, err := os.Lstat(path); err != nil {
		return logfile.Dir{}, err // it must not be created
	}
	return logfile.NoteDir(path)
}

// writesIn reports whether the process has a file open that is in the directory, or was when it was deleted.
func writesIn(pid int, dir string) bool {
	fds := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(fds)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if link, err := os.Readlink(filepath.Join(fds, e.Name())); err == nil && filepath.Dir(link) == dir {
			return true
		}
	}
	return false
}

// awaitNext waits until the monitor has renamed next to path. A monitor that did so without having next open has opened
// another file, and is killed.
func awaitNext(ctx context.Context, monitor process.Process, next *os.File, path string) error {
	renamed := func() bool { _, err := os.Lstat(path + ".tmp"); return errors.Is(err, fs.ErrNotExist) }
	err := process.Poll(ctx, func() bool { return hasOpen(monitor.Pid, next) || renamed() || !monitor.Alive() })
	if err != nil || hasOpen(monitor.Pid, next) {
		return err
	}
	return errors.Join(
		fmt.Errorf("conmon has opened another file than %s.tmp and is killed: the container has no log any more", path),
		monitor.Kill(ctx))
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
