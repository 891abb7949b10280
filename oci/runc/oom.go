package runc

import (
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/runc/conmon"
)

// oomKilled reports whether the kernel killed a process of the container for memory: by the counter of its cgroup; if
// that is gone, by the monitor's mark, or by the counter of the pod's if the container died of SIGKILL. The mark is
// set whenever the limit was hit, on cgroup v1 also when another container of the pod hit it.
func oomKilled(b bundle, rec record) bool {
	if kills, ok := rec.Cgroups.OOMKills(); ok {
		return kills > 0
	}
	return conmon.OOM(b.Dir()) || rec.PodOOMs.Increased() && readExitFile(b).Code == driver.KilledCode
}
