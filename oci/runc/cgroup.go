package runc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"

	"github.com/podd-project/podd/oci/process"
)

// cgroups are a container's own cgroup directories: by controller (or "name=systemd") on cgroup v1, and
// under "" for cgroup v2.
type cgroups map[string]string

// unified is the key of the cgroup v2 hierarchy.
const unified = ""

// cgroupsOf returns the cgroups of a process that the daemon is not in itself: everything below them may be
// killed. A container that shares the daemon's cgroup owns none.
func cgroupsOf(pid int) cgroups {
	theirs, err := readCgroups("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return nil
	}
	ours, err := readCgroups("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	mounts := cgroupMounts()
	own := cgroups{}
	for controller, path := range theirs {
		m, mounted := mounts[controller]
		if !mounted || within(ours[controller], path) {
			continue
		}
		if dir, ok := m.directory(path); ok {
			own[controller] = dir
		}
	}
	return own
}

// within tells whether path is dir or below it.
func within(path, dir string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}

// readCgroups reads /proc/<pid>/cgroup: path by controller.
func readCgroups(file string) (map[string]string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(f[1], ",") {
			paths[controller] = f[2]
		}
	}
	return paths, nil
}

// cgroupMount is where a hierarchy is mounted, and which of its cgroups is seen there.
type cgroupMount struct{ point, root string }

// directory is the directory of a cgroup, if the mount shows it.
func (m cgroupMount) directory(path string) (string, bool) {
	if !within(path, m.root) {
		return "", false
	}
	return filepath.Join(m.point, strings.TrimPrefix(path, strings.TrimSuffix(m.root, "/"))), true
}

// cgroupMounts finds the hierarchies in /proc/self/mountinfo, by controller. The first mount of each counts.
func cgroupMounts() map[string]cgroupMount {
	mounts := map[string]cgroupMount{}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return mounts
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		addCgroupMount(mounts, lines.Text())
	}
	return mounts
}

// addCgroupMount parses one line of mountinfo (proc(5)): "id parent dev root point options tags - type
// source superoptions".
func addCgroupMount(mounts map[string]cgroupMount, line string) {
	before, after, ok := strings.Cut(line, " - ")
	left, right := strings.Fields(before), strings.Fields(after)
	if !ok || len(left) < 6 || len(right) < 3 {
		return
	}
	m := cgroupMount{point: left[4], root: left[3]}
	var controllers []string
	switch right[0] {
	case "cgroup2":
		controllers = []string{unified}
	case "cgroup":
		controllers = strings.Split(right[2], ",")
	}
	for _, c := range controllers {
		if _, seen := mounts[c]; !seen {
			mounts[c] = m
		}
	}
}

// tracked is a directory that lists all the container's processes: one hierarchy is as good as another.
func (c cgroups) tracked() string {
	for _, controller := range []string{unified, "pids", "freezer", "memory", "devices", "name=systemd"} {
		if dir, ok := c[controller]; ok {
			if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
				return dir
			}
		}
	}
	return ""
}

// kill ends every process in the container's cgroup and below, and returns when none is left or ctx ends.
func (c cgroups) kill(ctx context.Context) error {
	dir := c.tracked()
	if dir == "" || len(members(dir)) == 0 {
		return nil
	}
	c.thaw()
	err := process.Poll(ctx, func() bool {
		// The kernel's own way, on cgroup v2 since Linux 5.14: no fork escapes it.
		_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
		left := members(dir)
		for _, pid := range left {
			killMember(dir, pid)
		}
		return len(left) == 0
	})
	if err != nil {
		return fmt.Errorf("kill what is left in %s: %w", dir, err)
	}
	return nil
}

// members lists the living processes in a cgroup and below it.
func members(dir string) (pids []int) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return nil // what vanishes while we look is gone
		}
		b, _ := os.ReadFile(path)
		for f := range strings.FieldsSeq(string(b)) {
			pid, err := strconv.Atoi(f)
			if err != nil || pid == 0 {
				continue // 0: a process of another PID namespace than ours
			}
			if p, err := process.Identify(pid); err == nil && p.Alive() {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// killMember kills the process if it is still in the cgroup once it cannot be mistaken any more.
func killMember(dir string, pid int) {
	p, err := process.Identify(pid)
	if err != nil {
		return
	}
	for _, path := range cgroupsOf(pid) {
		if within(path, dir) {
			_ = p.Signal(syscall.SIGKILL)
			return
		}
	}
}

// thaw wakes a paused container: frozen processes of cgroup v1 do not even die.
func (c cgroups) thaw() {
	if dir, ok := c["freezer"]; ok {
		_ = os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("THAWED"), 0)
	}
	if dir, ok := c[unified]; ok {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte("0"), 0)
	}
}

// frozen tells whether the container is paused.
func (c cgroups) frozen() bool {
	if dir, ok := c["freezer"]; ok {
		b, _ := os.ReadFile(filepath.Join(dir, "freezer.state"))
		return strings.HasPrefix(string(b), "FR") // FREEZING or FROZEN
	}
	b, _ := os.ReadFile(filepath.Join(c[unified], "cgroup.freeze"))
	return strings.HasPrefix(string(b), "1")
}

// remove removes the directories with all below them, deepest first. They must be empty of processes.
func (c cgroups) remove() error {
	var errs []error
	for _, dir := range c {
		var dirs []string
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		sort.Sort(sort.Reverse(sort.StringSlice(dirs)))
		for _, d := range dirs {
			if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("remove cgroup: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}

// cgroupsAt are the existing directories of a cgroupsPath of the cgroupfs driver, unless the daemon is in it.
func cgroupsAt(path string) cgroups {
	own := cgroups{}
	ours, err := readCgroups("/proc/self/cgroup")
	path = filepath.Join("/", path)
	if err != nil || path == "/" {
		return own
	}
	for controller, m := range cgroupMounts() {
		dir, ok := m.directory(path)
		if _, err := os.Stat(dir); !ok || err != nil || within(ours[controller], path) {
			continue
		}
		own[controller] = dir
	}
	return own
}
