package runc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/podd-project/podd/oci/runc/conmon"
)

// killedCode is the exit code of a process that SIGKILL has ended, by whomever it was sent.
const killedCode = 128 + 9

// eventsFile is where cgroup v2 counts, killsKey what the count of OOM kills is called, on v1 too.
const (
	eventsFile = "memory.events"
	killsKey   = "oom_kill"
)

// oomKilled tells whether the kernel killed a process of the container for memory: by the counter of its cgroup; when
// that is gone, by the monitor's mark, or by the counter of the pod's if SIGKILL has ended the container.
func oomKilled(b bundle, rec record) bool {
	if kills, ok := rec.Cgroups.oomKills(); ok {
		return kills > 0
	}
	return conmon.OOM(string(b)) || rec.PodOOMs.grown() && exitFile(b).Code == killedCode
}

// oomKills reads how many processes of the container the kernel has killed for memory; ok is false when the
// cgroup is gone, or too old a kernel does not count. The monitor's own mark says less: it is set whenever
// the limit was hit, on cgroup v1 also when another container of the pod caused it.
func (c cgroups) oomKills() (n uint64, ok bool) {
	if dir, there := c["memory"]; there {
		return counter(filepath.Join(dir, "memory.oom_control"))
	}
	if dir, there := c[unified]; there {
		return counter(filepath.Join(dir, eventsFile))
	}
	return 0, false
}

// podOOMs are the OOM kills in a pod's cgroup when a container was made. systemd removes the container's own, and the count
// in it, once the last process is gone: now and then before the monitor or podd have read it. The pod's cgroup stays, and
// counts what happens below.
type podOOMs struct {
	// Cgroup is its directory, empty where nobody but podd removes cgroups.
	Cgroup string `json:"cgroup,omitempty"`
	// Lost were counted in no cgroup below that was still there.
	Lost uint64 `json:"lost,omitempty"`
}

// countPodOOMs counts, for a container with its own cgroups.
func countPodOOMs(id string, own cgroups) podOOMs {
	dir, ok := own[unified]
	if _, v1 := own["memory"]; v1 || !ok {
		return podOOMs{}
	}
	if !strings.Contains(filepath.Base(dir), id) { // crun: in the container's scope
		dir = filepath.Dir(dir)
	}
	dir = filepath.Dir(dir)
	lost, ok := lostOOMs(dir)
	if !ok {
		return podOOMs{}
	}
	return podOOMs{Cgroup: dir, Lost: lost}
}

// grown tells whether more are lost by now. With more than one container in the pod that may be another's, if both are
// gone: but then that one was killed for memory meanwhile, and so suddenly that nobody saw it.
func (p podOOMs) grown() bool {
	if p.Cgroup == "" {
		return false
	}
	lost, ok := lostOOMs(p.Cgroup)
	return ok && lost > p.Lost
}

// lostOOMs are the kills below dir that no cgroup there has counted.
func lostOOMs(dir string) (lost uint64, ok bool) {
	if lost, ok = counter(filepath.Join(dir, eventsFile)); !ok {
		return 0, false
	}
	below, _ := filepath.Glob(filepath.Join(dir, "*", eventsFile)) // the pattern is well-formed, or there is nothing below
	for _, file := range below {
		n, _ := counter(file) // gone since: lost
		lost -= min(n, lost)
	}
	return lost, true
}

// counter reads the number of OOM kills from a cgroup file of "key value" lines.
func counter(file string) (uint64, bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == killsKey {
			n, err := strconv.ParseUint(f[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
