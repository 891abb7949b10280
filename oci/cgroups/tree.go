package cgroups

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// maxKept is the most files that a Tree holds open, whatever the process may open.
const maxKept = 1 << 14

// Tree is the machine's cgroups: one or more mounted hierarchies.
type Tree struct {
	// v1 is where each v1 controller is mounted; v2 the unified hierarchy, zero when there is none.
	v1 map[string]mount
	v2 mount
	// proc is /proc, sys is /sys; tests have their own.
	proc, sys string
	// spare is how many files may still be kept open; the others are opened for each reading.
	spare atomic.Int64
	// devices remembers the names of block devices.
	devices sync.Map
	// sizes are the sizes of huge pages, once they are known: nil or a []string.
	sizes atomic.Value
	// buffers are of bufferSize at least.
	buffers sync.Pool
}

// mount is a mounted hierarchy.
type mount struct {
	dir string
	// root is the cgroup that is seen at dir, "/" unless a part of a hierarchy is mounted.
	root string
}

// Find looks up where the hierarchies are mounted.
func Find() (*Tree, error) {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	t := newTree(string(info))
	if len(t.v1) == 0 && t.v2.dir == "" {
		return nil, fmt.Errorf("find cgroups: %w: no cgroup hierarchy is mounted", errdefs.ErrUnavailable)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil, fmt.Errorf("find cgroups: limit of open files: %w", err)
	}
	t.spare.Store(int64(min(limit.Cur/2, maxKept)))
	return t, nil
}

func newTree(mountinfo string) *Tree {
	t := &Tree{v1: map[string]mount{}, proc: "/proc", sys: "/sys"}
	for line := range strings.Lines(mountinfo) {
		t.addMount(line)
	}
	return t
}

// addMount takes in one line of mountinfo, see proc_pid_mountinfo(5). Of several mounts of a hierarchy the one
// that shows all of it is kept.
func (t *Tree) addMount(line string) {
	before, after, ok := strings.Cut(line, " - ")
	fields, source := strings.Fields(before), strings.Fields(after)
	if !ok || len(fields) < 5 || len(source) < 3 {
		return
	}
	m := mount{root: unescape(fields[3]), dir: unescape(fields[4])}
	switch source[0] {
	case "cgroup2":
		if t.v2.dir == "" || t.v2.root != "/" && m.root == "/" {
			t.v2 = m
		}
	case "cgroup":
		for option := range strings.SplitSeq(source[2], ",") {
			if have, mounted := t.v1[option]; known(option) && (!mounted || have.root != "/" && m.root == "/") {
				t.v1[option] = m
			}
		}
	}
}

// controllers are those that this package reads, by their names in v1.
func controllers() [7]string {
	return [...]string{"memory", "cpu", "cpuacct", "cpuset", "pids", "blkio", "hugetlb"}
}

func known(controller string) bool {
	all := controllers()
	return slices.Contains(all[:], controller)
}

// unescape undoes the kernel's octal escapes of space, tab, newline and backslash.
func unescape(s string) string {
	for i := 0; i+3 < len(s); i++ {
		if s[i] != '\\' {
			continue
		}
		if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
			s = s[:i] + string(rune(c)) + s[i+4:]
		}
	}
	return s
}

// Of returns the group that the process is in. The path is cut after the part that contains name, so that a
// container whose processes moved into groups of their own (an init system does) is found as a whole.
//
// Errors: errdefs.ErrNotFound when there is no such process, or name is in none of its groups.
func (t *Tree) Of(pid int, name string) (*Group, error) {
	f, err := os.Open(filepath.Join(t.proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return nil, fmt.Errorf("cgroup of process %d: %w", pid, notFound(err))
	}
	defer f.Close()
	v1, v2, err := cgroups.ParseCgroupFromReaderUnified(f)
	if err != nil {
		return nil, fmt.Errorf("cgroup of process %d: %w", pid, notFound(err))
	}
	places := map[string]place{}
	for controller, group := range v1 {
		if m, ok := t.v1[controller]; ok {
			places[controller] = t.place(m, cut(group, name), false)
		}
	}
	return t.group(places, cut(v2, name))
}

// At returns the group of that path, the same one in all hierarchies. Errors are as of Of.
func (t *Tree) At(group string) (*Group, error) {
	group = path.Join("/", group)
	places := map[string]place{}
	for controller, m := range t.v1 {
		places[controller] = t.place(m, group, false)
	}
	return t.group(places, group)
}

// cut returns the path up to the part that contains name, "" when there is none.
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

func (t *Tree) place(m mount, group string, v2 bool) place {
	if group == "" || m.dir == "" {
		return place{}
	}
	seen := group
	if m.root != "/" {
		seen = strings.TrimPrefix(group, m.root)
	}
	return place{tree: t, group: group, dir: filepath.Join(m.dir, seen), v2: v2}
}

// group keeps the places that exist; what v1 does not have v2 may.
func (t *Tree) group(places map[string]place, unified string) (*Group, error) {
	g := &Group{tree: t, places: map[string]place{}}
	for _, controller := range controllers() {
		p, legacy := places[controller]
		if !legacy && t.v1[controller].dir == "" {
			p = t.place(t.v2, unified, true)
		}
		if isDir(p.dir) {
			g.places[controller] = p
			g.path = cmp.Or(g.path, p.group)
		}
	}
	if p := t.place(t.v2, unified, true); isDir(p.dir) {
		g.unified = p
		g.path = cmp.Or(g.path, p.group)
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
