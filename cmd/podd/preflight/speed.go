package preflight

import (
	"debug/elf"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/mod/semver"
)

// SpeedFacts are the settings of a node on which the time of a pod's start, stop and commands depends most. Those of
// the kernel are read by Speed itself. test/bench/RESULTS.md has the measurements behind the advice.
type SpeedFacts struct {
	CPUs     int
	CgroupV2 bool
	// Masquerade is the CNI plugin that writes packet filter rules for each pod, "" if none does.
	Masquerade string
	// DefaultHandler and its Version are those of pods without a RuntimeClass; Crun is a handler with crun, "" if none
	// can be used.
	DefaultHandler, Version, Crun string
	// Monitor is the path of conmon, "" if no handler uses one.
	Monitor string
}

// smallNode is the number of CPUs up to which an interrupt on each is cheaper than the kernel's waits. It is a guess.
const smallNode = 8

// Speed adds what makes pods slow on this node, and what to do about it. None of it is a problem.
func (r *Report) Speed(f SpeedFacts) {
	before := len(*r)
	r.networkSpeed(f)
	r.runtimeSpeed(f)
	r.monitorSpeed(f.Monitor)
	r.cgroupSpeed(f.CgroupV2, mountOptions)
	r.rcuSpeed(f.CPUs, "/sys/kernel/rcu_expedited")
	if len(*r) == before {
		r.Add(OK, "speed", "no setting of this node is known to make pods slow")
	}
}

func (r *Report) networkSpeed(f SpeedFacts) {
	if f.Masquerade != "" {
		r.Add(Note, "network", "the CNI plugin %s runs iptables a dozen times at the start and the stop of each pod "+
			"(ipMasq), which takes longer than everything else: set ipMasq to false and masquerade with one rule for "+
			"the pods' range, or with ip-masq-agent", f.Masquerade)
	}
}

// cachingCrun is the first version of crun that keeps compiled seccomp filters for other containers in every build.
const cachingCrun = "v1.14"

func (r *Report) runtimeSpeed(f SpeedFacts) {
	if strings.HasPrefix(f.Version, "runc ") && f.Crun != "" {
		r.Add(Note, "handler "+f.DefaultHandler, "runc compiles the seccomp filter at each start and for each command, "+
			"within the CPU limit of the container; crun keeps it: try a RuntimeClass with the handler %s, or "+
			"runtime.default_handler = %q", f.Crun, f.Crun)
	}
	number, _ := strings.CutPrefix(f.Version, "crun version ")
	if v := "v" + number; semver.IsValid(v) && semver.Compare(v, cachingCrun) < 0 {
		r.Add(Note, "handler "+f.DefaultHandler, "crun %s may compile the seccomp filter for each container; from 1.14 on "+
			"all builds do it once for all containers with the same profile: install one", number)
	}
}

// monitorSpeed is about a conmon that is linked to libraries, of which each monitor relocates its own copies.
func (r *Report) monitorSpeed(path string) {
	if isDynamic(path) {
		r.Add(Note, "conmon", "%s is linked to shared libraries, which takes 0.2 MB of memory for each container's "+
			"monitor, and about 2 ms of the container's start and of CPU time: contrib/conmon.sh builds a static "+
			"one, for runtime.conmon", path)
	}
}

// isDynamic reports whether a program names a loader of shared libraries. False if it cannot be read, or is a script.
func isDynamic(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// cgroupSpeed is about the wait of a process that enters a cgroup, for a grace period of RCU.
func (r *Report) cgroupSpeed(v2 bool, options func(mountpoint string) string) {
	const cgroups = "/sys/fs/cgroup"
	switch {
	case !v2:
		r.Add(Note, "cgroups", "version 1: each command in a container waits some milliseconds for the kernel when its "+
			"process enters the cgroups; in version 2 it is started there: boot with version 2")
	case !strings.Contains(options(cgroups), "favordynmods"):
		r.Add(Note, "cgroups", "processes that are moved into a cgroup, such as those of containers, wait some "+
			"milliseconds for the kernel: mount -o remount,favordynmods %s (kernel 6.0)", cgroups)
	}
}

// rcuSpeed is about grace periods, for which network devices, packet filters and cgroups wait.
func (r *Report) rcuSpeed(cpus int, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		return
	}
	if on, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && on == 0 && cpus <= smallNode {
		r.Add(Note, "RCU", "on a node with %d CPUs the kernel can wait less when network devices, rules and cgroups "+
			"come and go, at the price of an interrupt on each CPU: write 1 to %s", cpus, file)
	}
}

// mountOptions returns the options of the filesystem at a mountpoint, "" if they cannot be read.
func mountOptions(mountpoint string) string {
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(mountpoint))
	if err != nil || len(mounts) == 0 {
		return ""
	}
	return mounts[len(mounts)-1].VFSOptions
}
