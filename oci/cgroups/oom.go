package cgroups

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// eventsFile holds cgroup v2's counters of memory events.
const eventsFile = "memory.events"

// OOMKills returns how many processes of the container the kernel has killed for memory; ok is false when the cgroup
// is gone, or the kernel is too old to count.
func (d Dirs) OOMKills() (n uint64, ok bool) {
	if dir, exists := d["memory"]; exists {
		return oomKills(filepath.Join(dir, "memory.oom_control"))
	}
	if dir, exists := d[unified]; exists {
		return oomKills(filepath.Join(dir, eventsFile))
	}
	return 0, false
}

// ForksRefused returns how often a limit of processes refused the container one, 0 when the cgroup is gone.
func (d Dirs) ForksRefused() (n uint64) {
	if dir := cmp.Or(d["pids"], d[unified]); dir != "" {
		n, _ = counter(filepath.Join(dir, "pids.events"), "max")
	}
	return n
}

// OOMBaseline holds the OOM kills in a pod's cgroup at the time when a container was created. systemd removes the
// container's own cgroup with its counter once the last process is gone, sometimes before the monitor or podd have read
// it. The pod's cgroup remains, and counts what happens below it.
type OOMBaseline struct {
	// Cgroup is the directory of the pod's cgroup, empty on cgroup v1.
	Cgroup string `json:"cgroup,omitempty"`
	// Lost is the number of kills that no existing cgroup below the pod's had counted.
	Lost uint64 `json:"lost,omitempty"`
}

// OOMBaseline reads the baseline for the container with this id, whose cgroups d are.
func (d Dirs) OOMBaseline(id string) OOMBaseline {
	dir, ok := d[unified]
	if _, v1 := d["memory"]; v1 || !ok {
		return OOMBaseline{}
	}
	if !strings.Contains(filepath.Base(dir), id) { // crun: a cgroup in the container's scope
		dir = filepath.Dir(dir)
	}
	dir = filepath.Dir(dir)
	lost, ok := lostOOMs(dir)
	if !ok {
		return OOMBaseline{}
	}
	return OOMBaseline{Cgroup: dir, Lost: lost}
}

// Increased reports whether more kills are lost now. With several containers in the pod they may be those of another
// container whose cgroup is gone as well.
func (o OOMBaseline) Increased() bool {
	if o.Cgroup == "" {
		return false
	}
	lost, ok := lostOOMs(o.Cgroup)
	return ok && lost > o.Lost
}

// lostOOMs returns the number of kills below dir that no cgroup there has counted.
func lostOOMs(dir string) (lost uint64, ok bool) {
	if lost, ok = oomKills(filepath.Join(dir, eventsFile)); !ok {
		return 0, false
	}
	below, _ := filepath.Glob(filepath.Join(dir, "*", eventsFile)) // no file matches a malformed pattern
	for _, file := range below {
		n, _ := oomKills(file) // the kills of a removed cgroup are lost
		lost -= min(n, lost)
	}
	return lost, true
}

func oomKills(file string) (uint64, bool) { return counter(file, "oom_kill") }

// counter reads a counter from a file of "key value" lines.
func counter(file, key string) (uint64, bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == key {
			n, err := strconv.ParseUint(f[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
