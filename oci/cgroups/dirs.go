package cgroups

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/containerd/cgroups/v3"
)

// Dirs are the directories of a container's own cgroups: by controller (or "name=systemd") on cgroup v1, under "" on
// cgroup v2. Drivers keep them in their records.
type Dirs map[string]string

// DirsOf returns the cgroups of a process that the daemon is not in itself: every process in them may be killed. A
// container that shares the daemon's cgroup has none.
func DirsOf(pid int) Dirs {
	theirs, err := membership("/proc/" + strconv.Itoa(pid))
	if err != nil {
		return nil
	}
	ours, err := membership("/proc/self")
	if err != nil {
		return nil
	}
	if h := remembered.Load(); h != nil {
		if own, all := h.dirsOf(theirs, ours); all {
			return own
		}
	}
	h, err := mounted()
	if err != nil {
		return nil
	}
	remembered.Store(&h)
	own, _ := h.dirsOf(theirs, ours)
	return own
}

// remembered are the hierarchies that DirsOf found last. They are read again when a process has a group that is not
// below them: the kernel's list of mounts has those of all pods, too, and takes it 3 us for each.
var remembered atomic.Pointer[hierarchies]

// dirsOf returns the directories of their groups that we are not in. all is whether each was found.
func (h hierarchies) dirsOf(theirs, ours map[string]string) (own Dirs, all bool) {
	own, all = Dirs{}, true
	for controller, group := range theirs {
		if within(ours[controller], group) {
			continue
		}
		dir, ok := h[controller].directory(group)
		if ok {
			own[controller] = dir
		}
		all = all && ok && isDir(dir)
	}
	return own, all
}

// AllAt reports whether all directories are those of the group, an absolute path of the cgroupfs driver.
func (d Dirs) AllAt(group string) bool {
	for _, dir := range d {
		if group == "/" || !strings.HasSuffix(dir, group) {
			return false
		}
	}
	return true
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
