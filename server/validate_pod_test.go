package server

import (
	"math"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// wantProblem checks that err is nil for an empty field, or else an invalid argument that begins with the field's name.
func wantProblem(t *testing.T, err error, field string) {
	t.Helper()
	if field == "" {
		if err != nil {
			t.Errorf("got %v, want no error", err)
		}
		return
	}
	if !errdefs.IsInvalidArgument(err) || !strings.HasPrefix(err.Error(), "invalid argument: "+field+": ") {
		t.Errorf("got %v, want an invalid argument about %s", err, field)
	}
}

func TestRunPodValidation(t *testing.T) {
	type pod = *cri.PodSandboxConfig
	for name, tt := range map[string]struct {
		change func(pod)
		field  string
	}{
		"good":                     {func(pod) {}, ""},
		"no metadata":              {func(p pod) { p.Metadata = nil }, "config.metadata"},
		"no name":                  {func(p pod) { p.Metadata.Name = "" }, "config.metadata.name"},
		"long name":                {func(p pod) { p.Metadata.Name = strings.Repeat("a", 254) }, "config.metadata.name"},
		"longest name":             {func(p pod) { p.Metadata.Name = strings.Repeat("a", 253) }, ""},
		"CNI argument in the name": {func(p pod) { p.Metadata.Name = "a;IP=1.2.3.4" }, "config.metadata.name"},
		"path in the name":         {func(p pod) { p.Metadata.Name = "../a" }, "config.metadata.name"},
		"name is ..":               {func(p pod) { p.Metadata.Name = ".." }, "config.metadata.name"},
		"newline in the name":      {func(p pod) { p.Metadata.Name = "a\nb" }, "config.metadata.name"},
		"no namespace":             {func(p pod) { p.Metadata.Namespace = "" }, "config.metadata.namespace"},
		"path in the namespace":    {func(p pod) { p.Metadata.Namespace = "a/b" }, "config.metadata.namespace"},
		"no uid":                   {func(p pod) { p.Metadata.Uid = "" }, ""},
		"NUL in the uid":           {func(p pod) { p.Metadata.Uid = "a\x00" }, "config.metadata.uid"},
		"no hostname":              {func(p pod) { p.Hostname = "" }, ""},
		"long hostname":            {func(p pod) { p.Hostname = strings.Repeat("a", 65) }, "config.hostname"},
		"hosts line in hostname":   {func(p pod) { p.Hostname = "a\n1.2.3.4 evil" }, "config.hostname"},
		"space in hostname":        {func(p pod) { p.Hostname = "a b" }, "config.hostname"},
		"no log directory":         {func(p pod) { p.LogDirectory = "" }, ""},
		"relative log directory":   {func(p pod) { p.LogDirectory = "var/log" }, "config.log_directory"},
		"log directory leads away": {func(p pod) { p.LogDirectory = "/var/log/pods/../../etc" }, "config.log_directory"},
		"dots in log directory":    {func(p pod) { p.LogDirectory = "/var/log/a..b" }, ""},
		"windows":                  {func(p pod) { p.Windows = &cri.WindowsPodSandboxConfig{} }, "config.windows"},
		"no linux":                 {func(p pod) { p.Linux = nil }, ""},
		"empty linux":              {func(p pod) { p.Linux = &cri.LinuxPodSandboxConfig{} }, ""},
		"NUL in a label":           {func(p pod) { p.Labels["a"] = "\x00" }, "config.labels"},
		"bad UTF-8 in a label":     {func(p pod) { p.Labels["a"] = "\xff" }, "config.labels"},
		"empty label key":          {func(p pod) { p.Labels[""] = "a" }, "config.labels"},
		"long label key":           {func(p pod) { p.Labels[strings.Repeat("a", 513)] = "" }, "config.labels"},
		"large annotations": {func(p pod) {
			p.Annotations = map[string]string{"a": strings.Repeat("a", 600<<10), "b": strings.Repeat("b", 600<<10)}
		}, "config.annotations"},
		"annotations of 256 KiB": {
			func(p pod) { p.Annotations = map[string]string{"a": strings.Repeat("a", 256<<10)} }, "",
		},
		"cgroup parent leads away": {func(p pod) { p.Linux.CgroupParent = "/kubepods/../.." }, "config.linux.cgroup_parent"},
		"slice":                    {func(p pod) { p.Linux.CgroupParent = "kubepods-burstable.slice" }, ""},
		"sysctl path": {
			func(p pod) { p.Linux.Sysctls = map[string]string{"../../etc/passwd": "x"} }, "config.linux.sysctls",
		},
		"absolute sysctl": {
			func(p pod) { p.Linux.Sysctls = map[string]string{"/proc/sys/a": "x"} }, "config.linux.sysctls",
		},
		"odd sysctl": {
			func(p pod) { p.Linux.Sysctls = map[string]string{"net.ipv4*": "x"} }, "config.linux.sysctls",
		},
		"sysctl of an interface": {
			func(p pod) { p.Linux.Sysctls = map[string]string{"net/ipv4/conf/eth0.100/rp_filter": "1"} }, "",
		},
		"sysctl with two lines": {
			func(p pod) { p.Linux.Sysctls = map[string]string{"net.a": "1\n2"} }, "config.linux.sysctls",
		},
		"sysctl with tabs": {
			func(p pod) { p.Linux.Sysctls = map[string]string{"net.ipv4.ip_local_port_range": "1024\t65535"} }, "",
		},
		"negative overhead": {
			func(p pod) { p.Linux.Overhead = &cri.LinuxContainerResources{CpuShares: -1} },
			"config.linux.overhead.cpu_shares",
		},
		"bad resources": {
			func(p pod) { p.Linux.Resources = &cri.LinuxContainerResources{CpuPeriod: 1} },
			"config.linux.resources.cpu_period",
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := goodPod()
			tt.change(cfg)
			wantProblem(t, checkRunPod(&cri.RunPodSandboxRequest{Config: cfg}), tt.field)
		})
	}
	wantProblem(t, checkRunPod(nil), "config")
	wantProblem(t, checkRunPod(&cri.RunPodSandboxRequest{Config: goodPod(), RuntimeHandler: "a\nb"}), "runtime_handler")
}

func TestPodNetworkValidation(t *testing.T) {
	type pod = *cri.PodSandboxConfig
	ports := func(ps ...*cri.PortMapping) func(pod) { return func(p pod) { p.PortMappings = ps } }
	dns := func(d *cri.DNSConfig) func(pod) { return func(p pod) { p.DnsConfig = d } }
	for name, tt := range map[string]struct {
		change func(pod)
		field  string
	}{
		"no DNS": {dns(nil), ""},
		"DNS server by name": {
			dns(&cri.DNSConfig{Servers: []string{"1.1.1.1", "dns.example.com"}}), "config.dns_config.servers[1]",
		},
		"IPv6 DNS server": {dns(&cri.DNSConfig{Servers: []string{"fe80::1%eth0"}}), ""},
		"line in a server's zone": {
			dns(&cri.DNSConfig{Servers: []string{"fe80::1%a\nnameserver 6.6.6.6"}}), "config.dns_config.servers[0]",
		},
		"line in a host IP's zone": {
			ports(&cri.PortMapping{ContainerPort: 1, HostPort: 1, HostIp: "fe80::1%a\nb"}),
			"config.port_mappings[0].host_ip",
		},
		"line in a search domain": {
			dns(&cri.DNSConfig{Searches: []string{"a\nnameserver 6.6.6.6"}}), "config.dns_config.searches[0]",
		},
		"space in a search domain": {dns(&cri.DNSConfig{Searches: []string{"a b"}}), "config.dns_config.searches[0]"},
		"root search domain":       {dns(&cri.DNSConfig{Searches: []string{"."}}), ""},
		"empty option":             {dns(&cri.DNSConfig{Options: []string{"ndots:1", ""}}), "config.dns_config.options[1]"},
		"no ports":                 {ports(), ""},
		"unset port":               {ports(&cri.PortMapping{}), ""},
		"null port":                {ports(nil), ""},
		"negative port":            {ports(&cri.PortMapping{ContainerPort: -1}), "config.port_mappings[0].container_port"},
		"large port":               {ports(&cri.PortMapping{ContainerPort: 65536}), "config.port_mappings[0].container_port"},
		"negative host port": {
			ports(&cri.PortMapping{ContainerPort: 1, HostPort: -1}), "config.port_mappings[0].host_port",
		},
		"large host port": {
			ports(&cri.PortMapping{ContainerPort: 1, HostPort: math.MaxInt32}), "config.port_mappings[0].host_port",
		},
		"nothing to publish": {ports(&cri.PortMapping{HostPort: 80}), "config.port_mappings[0].container_port"},
		"unknown protocol":   {ports(&cri.PortMapping{Protocol: 9}), "config.port_mappings[0].protocol"},
		"host IP by name": {
			ports(&cri.PortMapping{ContainerPort: 1, HostPort: 1, HostIp: "localhost"}),
			"config.port_mappings[0].host_ip",
		},
		"port taken": {ports(
			&cri.PortMapping{ContainerPort: 1, HostPort: 80}, &cri.PortMapping{ContainerPort: 2, HostPort: 80},
		),
			"config.port_mappings[1].host_port"},
		"same port, other protocol": {ports(
			&cri.PortMapping{ContainerPort: 1, HostPort: 80},
			&cri.PortMapping{ContainerPort: 1, HostPort: 80, Protocol: cri.Protocol_SCTP},
		), ""},
		"same port, other address": {ports(
			&cri.PortMapping{ContainerPort: 1, HostPort: 80, HostIp: "10.0.0.1"},
			&cri.PortMapping{ContainerPort: 1, HostPort: 80, HostIp: "10.0.0.2"},
		), ""},
		"too many": {ports(make([]*cri.PortMapping, 4097)...), "config.port_mappings"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := goodPod()
			tt.change(cfg)
			wantProblem(t, checkRunPod(&cri.RunPodSandboxRequest{Config: cfg}), tt.field)
		})
	}
}

func TestPodSecurityValidation(t *testing.T) {
	type security = *cri.LinuxSandboxSecurityContext
	const at = "config.linux.security_context."
	mode := func(n *cri.NamespaceOption) func(security) { return func(s security) { s.NamespaceOptions = n } }
	for name, tt := range map[string]struct {
		change func(security)
		field  string
	}{
		"no namespaces": {mode(nil), ""},
		"host everything": {mode(&cri.NamespaceOption{
			Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_NODE, Ipc: cri.NamespaceMode_NODE,
		}), ""},
		"network of container": {
			mode(&cri.NamespaceOption{Network: cri.NamespaceMode_CONTAINER}), at + "namespace_options.network",
		},
		"network of target": {
			mode(&cri.NamespaceOption{Network: cri.NamespaceMode_TARGET, TargetId: "a"}),
			at + "namespace_options.network",
		},
		"ipc of container": {mode(&cri.NamespaceOption{Ipc: cri.NamespaceMode_CONTAINER}), at + "namespace_options.ipc"},
		"pid of target": {
			mode(&cri.NamespaceOption{Pid: cri.NamespaceMode_TARGET, TargetId: "a"}), at + "namespace_options.pid",
		},
		"unknown pid":        {mode(&cri.NamespaceOption{Pid: 9}), at + "namespace_options.pid"},
		"unknown network":    {mode(&cri.NamespaceOption{Network: 9}), at + "namespace_options.network"},
		"unknown ipc":        {mode(&cri.NamespaceOption{Ipc: -1}), at + "namespace_options.ipc"},
		"target of a pod":    {mode(&cri.NamespaceOption{TargetId: "a"}), at + "namespace_options.target_id"},
		"group without user": {func(s security) { s.RunAsUser = nil }, at + "run_as_group"},
		"negative user":      {func(s security) { s.RunAsUser.Value = -1 }, at + "run_as_user"},
		"user that wraps":    {func(s security) { s.RunAsUser.Value = 1 << 32 }, at + "run_as_user"},
		"group that is -1":   {func(s security) { s.RunAsGroup.Value = math.MaxUint32 }, at + "run_as_group"},
		"negative group":     {func(s security) { s.SupplementalGroups = []int64{1, -1} }, at + "supplemental_groups[1]"},
		"too many groups": {
			func(s security) { s.SupplementalGroups = make([]int64, 65537) }, at + "supplemental_groups",
		},
		"unknown policy": {func(s security) { s.SupplementalGroupsPolicy = 2 }, at + "supplemental_groups_policy"},
		"seccomp without ref": {
			func(s security) { s.Seccomp.ProfileType = cri.SecurityProfile_Localhost },
			at + "seccomp.localhost_ref",
		},
		"relative seccomp ref": {func(s security) {
			s.Seccomp = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: "a.json"}
		}, at + "seccomp.localhost_ref"},
		"ref of a default":     {func(s security) { s.Seccomp.LocalhostRef = "/a.json" }, at + "seccomp.localhost_ref"},
		"unknown profile type": {func(s security) { s.Apparmor.ProfileType = 9 }, at + "apparmor.profile_type"},
		"apparmor without ref": {func(s security) { s.Apparmor.LocalhostRef = "" }, at + "apparmor.localhost_ref"},
		"control in SELinux":   {func(s security) { s.SelinuxOptions.Type = "a\n" }, at + "selinux_options.type"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := goodPod()
			tt.change(cfg.Linux.SecurityContext)
			wantProblem(t, checkRunPod(&cri.RunPodSandboxRequest{Config: cfg}), tt.field)
		})
	}
}

func TestUserNamespaceValidation(t *testing.T) {
	const at = "config.linux.security_context.namespace_options.userns_options."
	m := func(container, host, length uint32) *cri.IDMapping {
		return &cri.IDMapping{ContainerId: container, HostId: host, Length: length}
	}
	list := func(ms ...*cri.IDMapping) []*cri.IDMapping { return ms }
	good := list(m(0, 1000, 100000))
	many := list(m(0, 1, 1))
	for i := range uint32(340) {
		many = append(many, m(10+i, 10+i, 1))
	}
	for name, tt := range map[string]struct {
		u     *cri.UserNamespace
		field string
	}{
		"node":           {&cri.UserNamespace{Mode: cri.NamespaceMode_NODE}, ""},
		"pod":            {&cri.UserNamespace{Uids: good, Gids: good}, ""},
		"two extents":    {&cri.UserNamespace{Uids: list(m(0, 1000, 10), m(10, 5000, 10)), Gids: good}, ""},
		"node with uids": {&cri.UserNamespace{Mode: cri.NamespaceMode_NODE, Uids: good}, at + "uids"},
		"node with gids": {&cri.UserNamespace{Mode: cri.NamespaceMode_NODE, Gids: good}, at + "gids"},
		"container":      {&cri.UserNamespace{Mode: cri.NamespaceMode_CONTAINER}, at + "mode"},
		"target":         {&cri.UserNamespace{Mode: cri.NamespaceMode_TARGET}, at + "mode"},
		"no uids":        {&cri.UserNamespace{Gids: good}, at + "uids"},
		"no gids":        {&cri.UserNamespace{Uids: good}, at + "gids"},
		"no root":        {&cri.UserNamespace{Uids: list(m(1, 1000, 10)), Gids: good}, at + "uids"},
		"empty extent":   {&cri.UserNamespace{Uids: list(m(0, 1000, 0)), Gids: good}, at + "uids[0].length"},
		"beyond 32 bits": {
			&cri.UserNamespace{Uids: good, Gids: list(m(0, math.MaxUint32, 1))}, at + "gids[0].host_id",
		},
		"container beyond": {
			&cri.UserNamespace{Uids: list(m(0, 0, 1), m(2, 1, math.MaxUint32-1)), Gids: good},
			at + "uids[1].container_id",
		},
		"all there is": {&cri.UserNamespace{Uids: list(m(0, 0, math.MaxUint32)), Gids: good}, ""},
		"overlap in the pod": {
			&cri.UserNamespace{Uids: list(m(0, 1000, 10), m(9, 5000, 10)), Gids: good}, at + "uids[1].container_id",
		},
		"overlap on the node": {
			&cri.UserNamespace{Uids: list(m(0, 1000, 10), m(10, 1009, 10)), Gids: good}, at + "uids[1].host_id",
		},
		"contained": {
			&cri.UserNamespace{Uids: list(m(0, 1000, 100), m(200, 1010, 1)), Gids: good}, at + "uids[1].host_id",
		},
		"more than the kernel's": {&cri.UserNamespace{Uids: many, Gids: good}, at + "uids"},
		"null":                   {&cri.UserNamespace{Uids: list(nil), Gids: good}, at + "uids[0].length"},
		"twice the same": {
			&cri.UserNamespace{Uids: list(m(0, 1000, 100000), m(0, 2000, 100000)), Gids: good},
			at + "uids[1].container_id",
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := goodPod()
			cfg.Linux.SecurityContext.NamespaceOptions.UsernsOptions = tt.u
			wantProblem(t, checkRunPod(&cri.RunPodSandboxRequest{Config: cfg}), tt.field)
		})
	}
}
