package server

import (
	"math"
	"path"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podNamespaces checks the namespaces of a pod. CONTAINER is not defined for network and IPC (the kubelet never sends
// it), TARGET only for the PID namespace of a container.
func (c check) podNamespaces(field string, n *cri.NamespaceOption) {
	c = c.at(field)
	c.that(n.GetPid() != cri.NamespaceMode_TARGET, "pid", "must not be TARGET for a pod")
	c.namespaces(n)
}

// containerNamespaces is podNamespaces for a container, whose PID namespace may be another container's.
func (c check) containerNamespaces(field string, n *cri.NamespaceOption) {
	c = c.at(field)
	if n.GetPid() == cri.NamespaceMode_TARGET {
		c.id("target_id", n.GetTargetId())
	}
	c.namespaces(n)
}

func (c check) namespaces(n *cri.NamespaceOption) {
	known(c, "network", n.GetNetwork(), cri.NamespaceMode_name)
	c.that(podOrNode(n.GetNetwork()), "network", "must be POD or NODE")
	known(c, "pid", n.GetPid(), cri.NamespaceMode_name)
	known(c, "ipc", n.GetIpc(), cri.NamespaceMode_name)
	c.that(podOrNode(n.GetIpc()), "ipc", "must be POD or NODE")
	c.that(n.GetTargetId() == "" || n.GetPid() == cri.NamespaceMode_TARGET, "target_id", "requires pid to be TARGET")
	if n.GetUsernsOptions() != nil {
		c.userNamespace("userns_options", n.GetUsernsOptions())
	}
}

func podOrNode(m cri.NamespaceMode) bool {
	return m == cri.NamespaceMode_POD || m == cri.NamespaceMode_NODE
}

func (c check) userNamespace(field string, u *cri.UserNamespace) {
	c = c.at(field)
	c.that(podOrNode(u.GetMode()), "mode", "must be POD or NODE")
	if u.GetMode() == cri.NamespaceMode_NODE {
		c.that(len(u.GetUids()) == 0, "uids", "must be empty when mode is NODE")
		c.that(len(u.GetGids()) == 0, "gids", "must be empty when mode is NODE")
		return
	}
	c.rootedMappings("uids", u.GetUids())
	c.rootedMappings("gids", u.GetGids())
}

// rootedMappings checks the mappings of a user namespace. They must map id 0, which sets up the namespace.
func (c check) rootedMappings(field string, ms []*cri.IDMapping) {
	c.that(len(ms) > 0, field, "must not be empty when mode is POD")
	c.mappings(field, ms)
	rooted := false
	for _, m := range ms {
		rooted = rooted || m.GetContainerId() == 0
	}
	c.that(rooted, field, "must map container id 0")
}

// mappings checks id mappings by the kernel's rules: at most 340 extents, none empty, beyond 32 bits or
// overlapping another on either side (user_namespaces(7)).
func (c check) mappings(field string, ms []*cri.IDMapping) {
	const maxExtents = 340
	c.that(len(ms) <= maxExtents, field, "must not have more than 340 entries")
	if len(ms) > maxExtents {
		return
	}
	for i, m := range ms {
		c := c.item(field, i)
		c.that(m.GetLength() > 0, "length", "must not be 0")
		c.that(fits(m.GetContainerId(), m.GetLength()), "container_id", "plus length must fit in 32 bits")
		c.that(fits(m.GetHostId(), m.GetLength()), "host_id", "plus length must fit in 32 bits")
		for _, o := range ms[:i] {
			const overlaps = "must not overlap an earlier entry"
			length, other := m.GetLength(), o.GetLength()
			c.that(!overlap(m.GetContainerId(), length, o.GetContainerId(), other), "container_id", overlaps)
			c.that(!overlap(m.GetHostId(), length, o.GetHostId(), other), "host_id", overlaps)
		}
	}
}

// fits reports whether the range has valid ids. 2^32-1 is none, it means "unchanged".
func fits(first, length uint32) bool { return uint64(first)+uint64(length) <= math.MaxUint32 }

func overlap(a, alen, b, blen uint32) bool {
	return uint64(a) < uint64(b)+uint64(blen) && uint64(b) < uint64(a)+uint64(alen)
}

func (c check) selinux(field string, o *cri.SELinuxOption) {
	c = c.at(field)
	for name, s := range map[string]string{
		"user": o.GetUser(), "role": o.GetRole(), "type": o.GetType(), "level": o.GetLevel(),
	} {
		c.line(name, s, maxName)
	}
}

// user is an optional uid or gid; 2^32-1 is not valid.
func (c check) user(field string, v *cri.Int64Value) {
	if v != nil {
		c.between(field, v.GetValue(), 0, math.MaxUint32-1)
	}
}

func (c check) groups(field string, gids []int64) {
	c.that(len(gids) <= 65536, field, "must not have more than 65536 entries") // NGROUPS_MAX
	for i, g := range gids {
		c.item(field, i).between("", g, 0, math.MaxUint32-1)
	}
}

func (c check) seccomp(field string, p *cri.SecurityProfile) {
	c.profile(field, p)
	if p.GetProfileType() == cri.SecurityProfile_Localhost {
		c.at(field).absolute("localhost_ref", p.GetLocalhostRef())
	}
}

func (c check) apparmor(field string, p *cri.SecurityProfile) {
	c.profile(field, p)
	if p.GetProfileType() == cri.SecurityProfile_Localhost {
		c.at(field).line("localhost_ref", p.GetLocalhostRef(), maxPath)
	}
}

func (c check) profile(field string, p *cri.SecurityProfile) {
	c = c.at(field)
	known(c, "profile_type", p.GetProfileType(), cri.SecurityProfile_ProfileType_name)
	local := p.GetProfileType() == cri.SecurityProfile_Localhost
	c.that(!local || p.GetLocalhostRef() != "", "localhost_ref", "must not be empty when profile_type is Localhost")
	c.that(local || p.GetLocalhostRef() == "", "localhost_ref", "must be empty unless profile_type is Localhost")
}

// resources refuses values that no kernel accepts. Others may still be refused by this kernel.
func (c check) resources(field string, r *cri.LinuxContainerResources) {
	c.size(field, r, maxResources)
	c = c.at(field)
	c.that(
		r.GetCpuPeriod() == 0 || 1000 <= r.GetCpuPeriod() && r.GetCpuPeriod() <= 1000000, "cpu_period",
		"must be 0, or from 1000 to 1000000 microseconds",
	)
	c.between("cpu_quota", r.GetCpuQuota(), -1, math.MaxInt64)
	c.between("cpu_shares", r.GetCpuShares(), 0, math.MaxInt64)
	c.between("memory_limit_in_bytes", r.GetMemoryLimitInBytes(), -1, math.MaxInt64)
	c.between("memory_swap_limit_in_bytes", r.GetMemorySwapLimitInBytes(), -1, math.MaxInt64)
	c.between("oom_score_adj", r.GetOomScoreAdj(), -1000, 1000)
	c.cpuset("cpuset_cpus", r.GetCpusetCpus())
	c.cpuset("cpuset_mems", r.GetCpusetMems())
	c.count("hugepage_limits", len(r.GetHugepageLimits()))
	for i, h := range r.GetHugepageLimits() {
		c.item("hugepage_limits", i).that(isPageSize(h.GetPageSize()), "page_size", "must be a size such as 2MB or 1GB")
	}
	c.count("unified", len(r.GetUnified()))
	for k, v := range r.GetUnified() {
		c.that(isCgroupFile(k), "unified", "must name cgroup v2 files such as memory.max")
		c.text("unified", v, maxPath)
	}
}

// cpuset is a list such as "0-3,7".
func (c check) cpuset(field, s string) {
	c.text(field, s, maxPath)
	c.that(consistsOf(s, "0123456789,-"), field, "must be a list such as 0-3,7")
}

func consistsOf(s, characters string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return !strings.ContainsRune(characters, r) }) < 0
}

func isPageSize(s string) bool {
	digits, ok := strings.CutSuffix(s, "B")
	if !ok || len(digits) < 2 || !strings.ContainsRune("KMGT", rune(digits[len(digits)-1])) {
		return false
	}
	digits = digits[:len(digits)-1]
	return digits[0] != '0' && consistsOf(digits, "0123456789") && len(digits) < 10
}

// isCgroupFile reports whether s is a file name in the container's cgroup and not a path out of it.
func isCgroupFile(s string) bool {
	return s != "" && len(s) < 128 && consistsOf(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") &&
		strings.Contains(s, ".") && path.Base(s) == s && s != "." && s != ".."
}

func (c check) capabilities(field string, caps *cri.Capability) {
	c = c.at(field)
	lists := map[string][]string{
		"add_capabilities":         caps.GetAddCapabilities(),
		"drop_capabilities":        caps.GetDropCapabilities(),
		"add_ambient_capabilities": caps.GetAddAmbientCapabilities(),
	}
	for name, list := range lists {
		c.count(name, len(list))
		for i, s := range list {
			c.item(name, i).word("", s, 64)
		}
	}
}
