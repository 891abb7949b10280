package cgroups

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/podd-project/podd/oci/process"
)

// Kill kills every process in the container's cgroup and below it, and returns when none is left or ctx ends.
func (d Dirs) Kill(ctx context.Context) error {
	dir := d.tracking()
	if dir == "" || len(members(dir)) == 0 {
		return nil
	}
	d.Thaw()
	err := process.Poll(ctx, func() bool {
		// Cgroup v2 since Linux 5.14: no fork escapes it.
		_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
		left := members(dir)
		for _, p := range left {
			killMember(dir, p)
		}
		return len(left) == 0
	})
	if err != nil {
		return fmt.Errorf("kill remaining processes in %s: %w", dir, err)
	}
	return nil
}

// tracking returns a directory that lists all of the container's processes, in whichever hierarchy.
func (d Dirs) tracking() string {
	for _, controller := range []string{unified, "pids", "freezer", "memory", "devices", "name=systemd"} {
		if dir, ok := d[controller]; ok {
			if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
				return dir
			}
		}
	}
	return ""
}

// members returns the processes in a cgroup and below it, zombies excepted.
func members(dir string) (list []process.Process) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return nil // a directory that has just been removed has no members
		}
		b, _ := os.ReadFile(path)
		for field := range strings.FieldsSeq(string(b)) {
			pid, err := strconv.Atoi(field)
			if err != nil || pid == 0 {
				continue // 0: the process is in a PID namespace that is not below ours
			}
			if p, err := process.Identify(pid); err == nil && p.Alive() {
				list = append(list, p)
			}
		}
		return nil
	})
	return list
}

// killMember kills a process of which a thread is still in the cgroup: cgroup v1 shows a main thread that has ended in
// the root. It was identified before its cgroups are looked up here, so a process that got its pid since then is not
// killed.
func killMember(dir string, p process.Process) {
	threads, _ := os.ReadDir(filepath.Join("/proc", strconv.Itoa(p.Pid), "task")) // none if it is gone
	for _, thread := range threads {
		id, _ := strconv.Atoi(thread.Name())
		for _, path := range DirsOf(id) {
			if within(path, dir) {
				_ = p.Signal(syscall.SIGKILL)
				return
			}
		}
	}
}
