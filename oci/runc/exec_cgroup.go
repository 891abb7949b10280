package runc

import (
	"path/filepath"
	"strings"

	"github.com/podd-project/podd/oci/cgroups"
)

// newExecGroup creates a cgroup for the command whose process description, or directory, has that path. It returns nil
// when the runtime or the machine supports none: the command is then known by its parents and sessions only (see
// Process.KillTree).
func (r *Runtime) newExecGroup(rec record, path string) *cgroups.ExecGroup {
	version := r.capabilities().features.Version
	runc := atLeast(version, "runc version ", "1.1")
	if !runc && !atLeast(version, "crun version ", "1.8") {
		return nil
	}
	// crun takes a single path for all hierarchies; a group in each would have separate limits.
	if _, v1 := rec.Cgroups["freezer"]; v1 && !runc {
		return nil
	}
	return rec.Cgroups.NewExecGroup(execGroupName(path))
}

// execGroupName returns the name of the command's cgroup, made from that path. It has the id of the CRI call, and ends
// with the container's id, for sensors that look at the last part of a process's cgroup.
func execGroupName(path string) string {
	return "podd-" + strings.TrimSuffix(filepath.Base(path), ".json") + "-" + filepath.Base(filepath.Dir(path))
}

// execGroupOpts returns the options of the runtime's exec verb for the group.
func execGroupOpts(g *cgroups.ExecGroup) []string {
	switch {
	case g == nil:
		return nil
	case g.Controller == "":
		return []string{"--cgroup=" + g.Name}
	}
	return []string{"--cgroup=" + g.Controller + ":" + g.Name}
}
