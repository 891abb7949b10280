package server

import (
	"net/netip"
	"path"
	"strconv"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func checkRunPod(r *cri.RunPodSandboxRequest) error {
	c := newCheck()
	c.podConfig("config", r.GetConfig())
	c.line("runtime_handler", r.GetRuntimeHandler(), maxName)
	return c.err()
}

// checkPodID checks a request that only has a pod id.
func checkPodID(id string) error {
	c := newCheck()
	c.id("pod_sandbox_id", id)
	return c.err()
}

func checkPodFilter(f *cri.PodSandboxFilter) error {
	c := newCheck()
	c.filterID("filter.id", f.GetId())
	if f.GetState() != nil {
		known(c, "filter.state.state", f.GetState().GetState(), cri.PodSandboxState_name)
	}
	c.labels("filter.label_selector", f.GetLabelSelector())
	return c.err()
}

// filterID is an id, or empty if the filter has none.
func (c check) filterID(field, id string) {
	if id != "" {
		c.id(field, id)
	}
}

func (c check) podConfig(field string, cfg *cri.PodSandboxConfig) {
	c.that(cfg != nil, field, "must be set")
	c = c.at(field)
	c.podMetadata("metadata", cfg.GetMetadata())
	c.hostname("hostname", cfg.GetHostname())
	if dir := cfg.GetLogDirectory(); dir != "" {
		c.absolute("log_directory", dir)
		c.that(!hasDotDot(dir), "log_directory", "must not contain ..")
	}
	c.dns("dns_config", cfg.GetDnsConfig())
	c.ports("port_mappings", cfg.GetPortMappings())
	c.labels("labels", cfg.GetLabels())
	c.labels("annotations", cfg.GetAnnotations())
	c.that(cfg.GetWindows() == nil, "windows", "is not supported: podd only runs Linux containers")
	if linux := cfg.GetLinux(); linux != nil {
		c.linuxPod("linux", linux)
	}
}

func (c check) podMetadata(field string, m *cri.PodSandboxMetadata) {
	c.that(m != nil, field, "must be set")
	c = c.at(field)
	c.that(m.GetName() != "", "name", "must not be empty")
	c.label("name", m.GetName())
	c.that(m.GetNamespace() != "", "namespace", "must not be empty")
	c.label("namespace", m.GetNamespace())
	c.label("uid", m.GetUid())
}

// hostname may be empty; podd chooses one then.
func (c check) hostname(field, s string) {
	if s == "" {
		return
	}
	c.word(field, s, maxHostname)
	c.label(field, s)
}

func (c check) dns(field string, d *cri.DNSConfig) {
	c = c.at(field)
	c.count("servers", len(d.GetServers()))
	for i, s := range d.GetServers() {
		c.item("servers", i).address("", s)
	}
	c.count("searches", len(d.GetSearches()))
	for i, s := range d.GetSearches() {
		c.item("searches", i).word("", s, maxName+1) // a final dot is allowed
	}
	c.count("options", len(d.GetOptions()))
	for i, s := range d.GetOptions() {
		c.item("options", i).word("", s, maxName)
	}
}

// address is an IP address. netip allows any character in its zone ("%eth0"), so word checks it too.
func (c check) address(field, s string) {
	_, err := netip.ParseAddr(s)
	c.that(err == nil, field, "must be an IP address")
	c.word(field, s, maxName)
}

func (c check) ports(field string, ports []*cri.PortMapping) {
	c.count(field, len(ports))
	taken := map[string]bool{}
	for i, p := range ports {
		c := c.item(field, i)
		known(c, "protocol", p.GetProtocol(), cri.Protocol_name)
		c.between("container_port", int64(p.GetContainerPort()), 0, 65535)
		c.between("host_port", int64(p.GetHostPort()), 0, 65535)
		if ip := p.GetHostIp(); ip != "" {
			c.address("host_ip", ip)
		}
		if p.GetHostPort() == 0 { // no host port wanted
			continue
		}
		c.that(p.GetContainerPort() != 0, "container_port", "must be set if host_port is set")
		key := p.GetProtocol().String() + " " + p.GetHostIp() + " " + strconv.Itoa(int(p.GetHostPort()))
		c.that(!taken[key], "host_port", "is already used by an earlier entry")
		taken[key] = true
	}
}

func (c check) linuxPod(field string, l *cri.LinuxPodSandboxConfig) {
	c = c.at(field)
	c.cgroupParent("cgroup_parent", l.GetCgroupParent())
	c.sysctls("sysctls", l.GetSysctls())
	c.resources("overhead", l.GetOverhead())
	c.resources("resources", l.GetResources())
	if sc := l.GetSecurityContext(); sc != nil {
		c.podSecurity("security_context", sc)
	}
}

// cgroupParent is a cgroupfs path ("/kubepods/...") or a systemd slice ("kubepods.slice").
func (c check) cgroupParent(field, s string) {
	c.line(field, s, maxPath)
	c.that(!hasDotDot(s), field, "must not contain ..")
}

// sysctls checks the syntax. Which names a pod may set depends on its namespaces and is checked when they are written.
func (c check) sysctls(field string, m map[string]string) {
	c.count(field, len(m))
	for k, v := range m {
		c.word(field, k, maxName)
		c.that(!hasDotDot(k) && !path.IsAbs(k), field, "must be names of sysctls, not paths")
		c.that(onlySysctlCharacters(k), field, "must be names that consist of letters, digits and . / - _ :")
		c.line(field, strings.ReplaceAll(v, "\t", " "), maxPath) // the kernel separates lists by tabs
	}
}

func onlySysctlCharacters(s string) bool {
	for i := range len(s) {
		switch b := s[i]; {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9':
		case b == '.', b == '/', b == '-', b == '_', b == ':':
		default:
			return false
		}
	}
	return true
}

func (c check) podSecurity(field string, sc *cri.LinuxSandboxSecurityContext) {
	c = c.at(field)
	c.podNamespaces("namespace_options", sc.GetNamespaceOptions())
	c.selinux("selinux_options", sc.GetSelinuxOptions())
	c.user("run_as_user", sc.GetRunAsUser())
	c.user("run_as_group", sc.GetRunAsGroup())
	c.that(sc.GetRunAsGroup() == nil || sc.GetRunAsUser() != nil, "run_as_group", "requires run_as_user")
	c.groups("supplemental_groups", sc.GetSupplementalGroups())
	known(c, "supplemental_groups_policy", sc.GetSupplementalGroupsPolicy(), cri.SupplementalGroupsPolicy_name)
	c.seccomp("seccomp", sc.GetSeccomp())
	c.apparmor("apparmor", sc.GetApparmor())
	//lint:ignore SA1019 old clients set it
	c.text("seccomp_profile_path", sc.GetSeccompProfilePath(), maxPath)
}
