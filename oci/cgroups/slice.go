package cgroups

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// SlicePath returns the cgroup of a systemd slice: each dash in its name is a step down the tree
// (systemd.slice(5)), so that "a-b.slice" is /a.slice/a-b.slice. A path is taken for its last part.
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

// Only is true when own is true of every group right below, and no process is in the group itself: then what the
// group uses is theirs.
func (g *Group) Only(own func(child string) bool) (bool, error) {
	dir := g.home().dir
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
