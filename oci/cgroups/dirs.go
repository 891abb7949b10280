package cgroups

import (
	"os"
	"path/filepath"
	"strconv"

	"github.com/containerd/cgroups/v3"
)

// Dirs are the directories of a container's own cgroups: by controller (or "name=systemd") on cgroup v1, under "" on
// cgroup v2. Drivers keep them in their records.
type Dirs map[string]string

// DirsOf returns the cgroups of a process that the daemon is not in itself: every process in them may be killed. A
// container that shares the daemon's cgroup has none.
func DirsOf(pid int) Dirs {
	h, err := mounted()
	if err != nil {
		return nil
	}
	return h.dirsOf(pid)
}

func (h hierarchies) dirsOf(pid int) Dirs {
	theirs, err := membership("/proc/" + strconv.Itoa(pid))
	if err != nil {
		return nil
	}
	ours, err := membership("/proc/self")
	if err != nil {
		return nil
	}
	own := Dirs{}
	for controller, group := range theirs {
		if within(ours[controller], group) {
			continue
		}
		if dir, ok := h[controller].directory(group); ok {
			own[controller] = dir
		}
	}
	return own
}

// DirsAt returns the existing directories of a cgroupsPath of the cgroupfs driver, except those that the daemon is in.
func DirsAt(group string) Dirs {
	own := Dirs{}
	ours, err := membership("/proc/self")
	group = filepath.Join("/", group)
	if err != nil || group == "/" {
		return own
	}
	h, _ := mounted() // none on error
	for controller, m := range h {
		dir, ok := m.directory(group)
		if ok && isDir(dir) && !within(ours[controller], group) {
			own[controller] = dir
		}
	}
	return own
}

// membership returns the cgroups of a process by controller.
func membership(procDir string) (map[string]string, error) {
	f, err := os.Open(filepath.Join(procDir, "cgroup"))
	if err != nil {
		return nil, notFound(err)
	}
	defer f.Close()
	groups, v2, err := cgroups.ParseCgroupFromReaderUnified(f)
	if err != nil {
		return nil, notFound(err)
	}
	if v2 != "" {
		groups[unified] = v2
	}
	return groups, nil
}
