package cgroups

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// maxKept is the most files that a Tree keeps open, whatever the process's limit.
const maxKept = 1 << 14

// Tree is the machine's cgroups: one or more mounted hierarchies.
type Tree struct {
	mounts hierarchies
	// proc is /proc, sys is /sys, except in tests.
	proc, sys string
	// spare is how many more files may be kept open; others are opened for each read.
	spare atomic.Int64
	// devices caches the names of block devices.
	devices sync.Map
	// sizes caches the sizes of huge pages: nil or a []string.
	sizes atomic.Value
	// priming is true during Prime.
	priming atomic.Bool
	// buffers have bufferSize bytes or more.
	buffers sync.Pool
}

// Find finds the mounted hierarchies.
func Find() (*Tree, error) {
	h, err := mounted()
	if err != nil {
		return nil, err
	}
	if len(h) == 0 {
		return nil, fmt.Errorf("find cgroups: %w: no cgroup hierarchy is mounted", errdefs.ErrUnavailable)
	}
	t := newTree(h)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil, fmt.Errorf("find cgroups: limit of open files: %w", err)
	}
	t.spare.Store(int64(min(limit.Cur/2, maxKept)))
	return t, nil
}

func newTree(h hierarchies) *Tree { return &Tree{mounts: h, proc: "/proc", sys: "/sys"} }

// controllers returns the controllers whose files are read, by their names in v1.
func controllers() []string {
	return []string{"memory", "cpu", "cpuacct", "cpuset", "pids", "blkio", "hugetlb"}
}

// Of returns the group of a process. The path is cut after the part that contains name, so that the group is that of
// the container even if the process has moved into a group below it, as an init system does.
//
// Errors: errdefs.ErrNotFound if the process does not exist, or none of its groups has name.
func (t *Tree) Of(pid int, name string) (*Group, error) {
	groups, err := membership(filepath.Join(t.proc, strconv.Itoa(pid)))
	if err != nil {
		return nil, fmt.Errorf("cgroup of process %d: %w", pid, err)
	}
	return t.group(func(controller string) string { return cut(groups[controller], name) })
}

// At returns the group of that path, the same one in all hierarchies. Errors are those of Of.
func (t *Tree) At(group string) (*Group, error) {
	group = path.Join("/", group)
	return t.group(func(string) string { return group })
}

// cut returns the path up to the part that contains name, "" if there is none.
func cut(group, name string) string {
	i := strings.Index(group, name)
	if i < 0 || name == "" {
		return ""
	}
	if end := strings.IndexByte(group[i:], '/'); end >= 0 {
		return group[:i+end]
	}
	return group
}

// place is a group in one hierarchy.
type place struct {
	tree       *Tree
	group, dir string
	v2         bool
}

// place returns the group in the hierarchy of that controller. A group that a partial mount does not show is looked up
// below the mount point, where OCI runtimes make it.
func (t *Tree) place(controller, group string) place {
	m := t.mounts[controller]
	if group == "" || m.dir == "" {
		return place{}
	}
	dir, ok := m.directory(group)
	if !ok {
		dir = filepath.Join(m.dir, group)
	}
	return place{tree: t, group: group, dir: dir, v2: controller == unified}
}

// group opens a group that is at these paths by controller, in the hierarchies where it exists. A controller that v1
// does not have is looked up in v2.
func (t *Tree) group(at func(controller string) string) (*Group, error) {
	g := &Group{tree: t, places: map[string]place{}}
	v2 := t.place(unified, at(unified))
	for _, controller := range controllers() {
		p := t.place(controller, at(controller))
		if t.mounts[controller].dir == "" {
			p = v2
		}
		if isDir(p.dir) {
			g.places[controller] = p
			g.path = cmp.Or(g.path, p.group)
		}
	}
	if isDir(v2.dir) {
		g.unified = v2
		g.path = cmp.Or(g.path, v2.group)
	}
	if g.path == "" {
		return nil, fmt.Errorf("cgroup %w", errdefs.ErrNotFound)
	}
	g.open()
	return g, nil
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return path != "" && err == nil && info.IsDir()
}
