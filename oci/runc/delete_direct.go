package runc

import (
	"path/filepath"

	"github.com/podd-project/podd/oci/process"
)

// When the first process of a container of runc or crun is dead, `<runtime> delete` kills and removes its cgroups,
// removes the runtime's state, and runs poststop hooks. podd does the first two in any case. The runtime may also
// have made groups of the resource control (intelRdt), and with systemd a scope and, by crun, a program of BPF.

// ownedCgroup returns the cgroupsPath of the new container if nothing but its cgroups and the runtime's state is to be
// removed when it is dead, otherwise "".
func (r *Runtime) ownedCgroup(c loadedConfig, rec record) string {
	switch path := c.Linux.CgroupsPath; {
	case r.knownMethod() == "", r.cfg.SystemdCgroup, len(c.Hooks.Poststop) > 0, len(c.Linux.IntelRdt) > 0:
	case !rec.Init.Alive(): // a zombie is shown in the root of v1 hierarchies, so that some of rec.Cgroups may be missing
	case filepath.IsAbs(path):
		return filepath.Clean(path)
	}
	return ""
}

// removableByPodd reports whether podd removes all that is left of the dead container without its runtime.
func (r *Runtime) removableByPodd(rec record) bool {
	return rec.Cgroup != "" && rec.Init != (process.Process{}) && !r.cfg.SystemdCgroup &&
		len(rec.Cgroups) > 0 && rec.Cgroups.AllAt(rec.Cgroup)
}
