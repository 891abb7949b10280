package runc

import (
	"context"
	"time"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/runc/conmon"
)

// describeLimits fills in how often the container reached its limits: how many forks the kernel refused; how many
// processes of it the kernel has killed for lack of memory, and whether that may have ended it: by the counter of its
// cgroup; if that is gone, by the monitor's mark, or by the counter of the pod's if the container died of SIGKILL. The
// mark is set whenever the limit was hit, on cgroup v1 also when another container of the pod hit it.
func describeLimits(b bundle, rec record, e *oci.Exit) {
	kills, ok := rec.Cgroups.OOMKills()
	if !ok && (conmon.OOM(b.Dir()) || rec.PodOOMs.Increased() && e.Code == driver.KilledCode) {
		kills = 1
	}
	e.OOMKills, e.OOM = kills, kills > b.ExcusedOOMs()
	e.ForksRefused = rec.Cgroups.ForksRefused()
}

// sandboxTime is how long the process of a sandbox may be seen after its containers have ended.
const sandboxTime = time.Second

// describeLimits is describeLimits for containers in a sandbox, too: the kernel kills the sandbox as a whole.
func (r *Runtime) describeLimits(b bundle, rec record, e *oci.Exit) {
	if !rec.isSubcontainer(b.ID()) {
		describeLimits(b, rec, e)
		return
	}
	host, infra, err := r.open(rec.Sandbox)
	if err != nil || e.Code != driver.KilledCode {
		return
	}
	sandbox := oci.Exit{Code: e.Code}
	describeLimits(host, infra, &sandbox)
	ctx, cancel := context.WithTimeout(context.Background(), sandboxTime)
	defer cancel()
	if sandbox.OOM && infra.Init.Wait(ctx) == nil {
		e.OOM, e.OOMKills = true, sandbox.OOMKills
	}
}

// watchOOMs is Bundle.WatchOOMs for the counter of the container's cgroup.
func (b bundle) watchOOMs(rec record) (excuse func()) {
	return b.WatchOOMs(func() uint64 { kills, _ := rec.Cgroups.OOMKills(); return kills }, rec.Init)
}
