package runc

import (
	"path/filepath"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/process"
)

// When the first process of a container of runc or crun is dead, `<runtime> delete` kills and removes its cgroups,
// removes the runtime's state, and runs poststop hooks. podd does the first two in any case. What the runtime may have
// made besides are groups of the resource control (intelRdt), and with systemd a scope and, by crun, a program of BPF.

// ownedCgroup returns the cgroupsPath of the new container if nothing but its cgroups and the runtime's state is to be
// removed when it is dead, else "".
func (r *Runtime) ownedCgroup(req oci.CreateRequest) string {
	s := req.Spec
	switch {
	case r.knownWay() == "", r.cfg.SystemdCgroup, req.Image != "":
	case len(specHooks(s).Poststop) > 0, s == nil, s.Linux == nil, s.Linux.IntelRdt != nil:
	case filepath.IsAbs(s.Linux.CgroupsPath):
		return filepath.Clean(s.Linux.CgroupsPath)
	}
	return ""
}

// removableByPodd reports whether podd removes all that is left of the dead container without its runtime.
func (r *Runtime) removableByPodd(rec record) bool {
	return rec.Cgroup != "" && rec.Init != (process.Process{}) && !r.cfg.SystemdCgroup &&
		len(rec.Cgroups) > 0 && rec.Cgroups.AllAt(rec.Cgroup)
}
