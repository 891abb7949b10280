package ocitest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// leaks holds what was there before a test.
type leaks struct {
	t               testing.TB
	dir, cgroup     string
	fds, goroutines int
}

// watchLeaks counts what this process has and registers the check; it must be called early, so that the check
// runs late: after the test's containers are deleted, before its directory is.
func watchLeaks(t testing.TB) *leaks {
	wakePoller()
	l := &leaks{t: t, fds: countFDs(), goroutines: runtime.NumGoroutine()}
	t.Cleanup(l.check)
	return l
}

// wakePoller makes the runtime open the descriptors of its poller, which it keeps.
func wakePoller() {
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
}

func countFDs() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

// check runs after everything else of the test has been cleaned up, but its directory.
func (l *leaks) check() {
	if l.dir == "" {
		return
	}
	l.removeCgroups()
	var found []string
	for range 1000 { // killed processes take a moment to vanish, on a busy machine seconds
		found = l.find()
		if len(found) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, f := range found {
		l.t.Errorf("left behind: %s", f)
	}
	if runtime.NumGoroutine() > l.goroutines {
		buf := make([]byte, 1<<20)
		l.t.Logf("%s", buf[:runtime.Stack(buf, true)])
	}
}

// find lists what was not there before.
func (l *leaks) find() (found []string) {
	found = append(found, l.processes()...)
	if b, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(b, []byte(l.dir)) {
		found = append(found, "mounts in "+l.dir)
	}
	for _, c := range l.cgroups() {
		found = append(found, "cgroup "+c)
	}
	if countFDs() > l.fds {
		found = append(found, "file descriptors")
	}
	if runtime.NumGoroutine() > l.goroutines {
		found = append(found, "goroutines")
	}
	return found
}

// processes finds those that were started with a path in the test's directory, or live below it.
func (l *leaks) processes() (found []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		cmdline, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		root, _ := os.Readlink(filepath.Join(d, "root"))
		cgroup, _ := os.ReadFile(filepath.Join(d, "cgroup"))
		if bytes.Contains(cmdline, []byte(l.dir)) || strings.HasPrefix(root, l.dir) ||
			bytes.Contains(cgroup, []byte(l.cgroup)) {
			found = append(found, filepath.Base(d)+": "+string(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
		}
	}
	return found
}

// cgroups finds the test's cgroups in every hierarchy, v1 and v2.
func (l *leaks) cgroups() []string {
	v1, _ := filepath.Glob("/sys/fs/cgroup/*" + l.cgroup)
	v2, _ := filepath.Glob("/sys/fs/cgroup" + l.cgroup)
	return append(v1, v2...)
}

// removeCgroups removes the parent that stands for the pod's cgroup, which runtimes rightly leave alone; one
// that is not empty stays and is reported.
func (l *leaks) removeCgroups() {
	for _, dir := range l.cgroups() {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.t.Logf("%v", err)
		}
	}
	for _, name := range []string{"state", "run"} {
		entries, _ := os.ReadDir(filepath.Join(l.dir, name))
		for _, e := range entries {
			if e.Name() == ".cache" || e.Name() == ".empty-directory" { // crun's, for all containers
				continue
			}
			l.t.Errorf("left behind: %s/%s", name, e.Name())
		}
	}
}
