package cgroups

import (
	"os"
	"path/filepath"
)

// Prime takes the kernel's lock for the migration of processes once, so that the next process that enters a cgroup
// within about 15 ms need not wait for it. The lock is one for all hierarchies. It waits for an RCU grace period, about
// 8 ms, unless it was taken a moment ago (percpu_rw_semaphore, rcu_sync). A container's runtime enters its cgroup about
// 15 ms after the request, so the wait overlaps with podd's own work.
//
// It moves this process into the cgroup that it is in, which changes nothing. It blocks while it waits. A failure costs
// nothing but the time that would have been saved, and is not reported.
func (t *Tree) Prime() {
	if !t.priming.CompareAndSwap(false, true) {
		return // the other call's grace period serves this one, too
	}
	defer t.priming.Store(false)
	groups, err := membership(filepath.Join(t.proc, "self"))
	if err != nil {
		return
	}
	for controller, group := range groups {
		if dir, ok := t.mounts[controller].directory(group); ok {
			_ = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0)
			return
		}
	}
}
