package cgroups

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// unified is the key of the cgroup v2 hierarchy where a map has controllers as keys.
const unified = ""

// mount is a mounted hierarchy.
type mount struct {
	dir string
	// root is the cgroup that is seen at dir, "/" unless a part of a hierarchy is mounted.
	root string
}

// hierarchies are the mounted hierarchies: by controller on v1, also by a name such as "name=systemd"; under "" for v2.
type hierarchies map[string]mount

// cgroupMounts selects the mounts of hierarchies.
func cgroupMounts() mountinfo.FilterFunc { return mountinfo.FSTypeFilter("cgroup", "cgroup2") }

// mounted reads the calling thread's mountinfo.
func mounted() (hierarchies, error) {
	mounts, err := mountinfo.GetMounts(cgroupMounts())
	if err != nil {
		return nil, fmt.Errorf("list cgroup hierarchies: %w", err)
	}
	return byController(mounts), nil
}

// byController keeps one mount of each hierarchy: the first that shows all of it, else the first.
func byController(mounts []*mountinfo.Info) hierarchies {
	h := hierarchies{}
	for _, m := range mounts {
		controllers := []string{unified}
		if m.FSType == "cgroup" {
			controllers = v1Controllers(m)
		}
		for _, c := range controllers {
			if have, seen := h[c]; !seen || have.root != "/" && m.Root == "/" {
				h[c] = mount{dir: m.Mountpoint, root: m.Root}
			}
		}
	}
	return h
}

// v1Controllers returns the controllers of a v1 hierarchy, which the kernel lists among the other mount options.
func v1Controllers(m *mountinfo.Info) []string {
	return slices.DeleteFunc(strings.Split(m.VFSOptions, ","), func(option string) bool {
		switch option {
		case "rw", "ro", "none", "xattr", "noprefix", "clone_children", "cpuset_v2_mode", "favordynmods":
			return true
		}
		return strings.HasPrefix(option, "release_agent=")
	})
}

// dirs returns the mount points, each once.
func (h hierarchies) dirs() []string {
	var dirs []string
	for _, m := range h {
		dirs = append(dirs, m.dir)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}

// directory returns the directory of a cgroup, if the mount shows it.
func (m mount) directory(group string) (string, bool) {
	if m.dir == "" || !within(group, m.root) {
		return "", false
	}
	return filepath.Join(m.dir, strings.TrimPrefix(group, strings.TrimSuffix(m.root, "/"))), true
}
