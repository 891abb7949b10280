package cgroups

import (
	"os"
	"path/filepath"
	"strings"
)

// Thaw resumes a paused container. On cgroup v1 SIGKILL does not end frozen processes.
func (d Dirs) Thaw() {
	if dir, ok := d["freezer"]; ok {
		_ = os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("THAWED"), 0)
	}
	if dir, ok := d[unified]; ok {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte("0"), 0)
	}
}

// Frozen reports whether the container is paused.
func (d Dirs) Frozen() bool {
	if dir, ok := d["freezer"]; ok {
		b, _ := os.ReadFile(filepath.Join(dir, "freezer.state"))
		return strings.HasPrefix(string(b), "FR") // FREEZING or FROZEN
	}
	b, _ := os.ReadFile(filepath.Join(d[unified], "cgroup.freeze"))
	return strings.HasPrefix(string(b), "1")
}
