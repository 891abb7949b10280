package cgroups

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// SlicePath returns the cgroup of a systemd slice: each dash in its name separates levels of the tree
// (systemd.slice(5)), so that "a-b.slice" is /a.slice/a-b.slice. Of a path the last part counts.
func SlicePath(slice string) string {
	stem := strings.TrimSuffix(path.Base(slice), ".slice")
	if stem == "-" || stem == "" {
		return "/"
	}
	group, name := "/", ""
	for part := range strings.SplitSeq(stem, "-") {
		if name != "" {
			name += "-"
		}
		name += part
		group = path.Join(group, name+".slice")
	}
	return group
}

// Only reports whether own is true for every group directly below, and no process is in the group itself: then the
// group's usage is theirs.
func (g *Group) Only(own func(child string) bool) (bool, error) {
	dir := g.processPlace().dir
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, fmt.Errorf("groups below %s: %w", g.path, notFound(err))
	}
	for _, e := range entries {
		if e.IsDir() && !own(e.Name()) {
			return false, nil
		}
	}
	procs, err := g.tree.readFile(filepath.Join(dir, "cgroup.procs"))
	return len(bytes.TrimSpace(procs)) == 0, err
}
