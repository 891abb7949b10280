package namespaces

import (
	"maps"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/test/userns"
)

func TestDefaultSysctls(t *testing.T) {
	const ping, port = "net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start"
	defaults := map[string]string{ping: "0 1", port: "0", "kernel.msgmax": "9", "net.core.somaxconn": ""}
	all := Request{Net: "/n", IPC: "/i", UTS: "/u"}
	for name, c := range map[string]struct {
		r    Request
		own  map[string]string
		want map[string]string
	}{
		"none of its own": {all, nil, map[string]string{ping: "0 1", port: "0", "kernel.msgmax": "9"}},
		"host network":    {Request{IPC: "/i"}, nil, map[string]string{"kernel.msgmax": "9"}},
		"host IPC":        {Request{Net: "/n"}, nil, map[string]string{ping: "0 1", port: "0"}},
		"all of the node": {Request{}, nil, nil},
		"the pod's wins":  {Request{Net: "/n"}, map[string]string{port: "80"}, map[string]string{ping: "0 1", port: "80"}},
		"another spelling": {
			Request{Net: "/n"}, map[string]string{"net/ipv4/ping_group_range": "1 0"},
			map[string]string{"net/ipv4/ping_group_range": "1 0", port: "0"},
		},
		"invalid, is kept": {
			Request{Net: "/n"}, map[string]string{"vm.x": "1"}, map[string]string{"vm.x": "1", ping: "0 1", port: "0"},
		},
	} {
		c.r.Sysctls = maps.Clone(c.own)
		if got := c.r.WithDefaultSysctls(defaults).Sysctls; !maps.Equal(got, c.want) {
			t.Errorf("%s: sysctls = %v, want %v", name, got, c.want)
		}
		if !maps.Equal(c.r.Sysctls, c.own) {
			t.Errorf("%s: the pod's own map was changed to %v", name, c.r.Sysctls)
		}
	}
	for key, value := range defaults {
		if err := CheckDefaultSysctl(key, value); err != nil {
			t.Errorf("CheckDefaultSysctl(%s) = %v, want nil", key, err)
		}
	}
	if err := CheckDefaultSysctl("vm.swappiness", "1"); err == nil {
		t.Error("CheckDefaultSysctl of a sysctl of the node = nil, want an error")
	}
}

func TestPingGroupsAreMapped(t *testing.T) {
	const key = "net.ipv4.ping_group_range"
	one := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100000, Size: 65536}}
	for _, c := range []struct {
		key, value string
		gids       []specs.LinuxIDMapping
		want       string // "" for an error
	}{
		{key, "0 2147483647", one, "100000 165535"},
		{"net/ipv4/ping_group_range", "0\t2147483647", one, "100000 165535"},
		{key, "1000 4294967295", one, "101000 165535"},
		{key, "5 6", one, "100005 100006"},
		{key, "1 0", one, "1 0"}, // no group
		{key, "70000 80000", one, ""},
		{key, "nonsense", one, "nonsense"},
		{key, "0 99999999999", one, "0 99999999999"},
		{"net.ipv4.ip_local_port_range", "0 70000", one, "0 70000"},
		{key, "0 2147483647", []specs.LinuxIDMapping{
			{ContainerID: 10, HostID: 110, Size: 90}, {ContainerID: 0, HostID: 100, Size: 10},
		}, "100 199"},
		{key, "0 2147483647", []specs.LinuxIDMapping{
			{ContainerID: 0, HostID: 5000, Size: 10}, {ContainerID: 10, HostID: 100, Size: 90},
		}, "100 189"},
	} {
		parts, err := splitKey(c.key)
		if err != nil {
			t.Fatal(err)
		}
		got, err := sysctl{key: c.key, parts: parts, value: c.value}.mapPingGroups(c.gids)
		if c.want == "" {
			if !errdefs.IsInvalidArgument(err) {
				t.Errorf("%s %q = %q, %v, want an invalid argument", c.key, c.value, got.value, err)
			}
			continue
		}
		if err != nil || got.value != c.want {
			t.Errorf("%s %q with %v = %q, %v, want %q", c.key, c.value, c.gids, got.value, err, c.want)
		}
	}
}

// TestPingGroupsInUserNamespace: a pod without mappings has the groups that podd has.
func TestPingGroupsInUserNamespace(t *testing.T) {
	if !userns.Inside(t) {
		return
	}
	s := sysctl{parts: strings.Split(pingGroupRange, "/"), value: "0 2147483647"}
	if got, err := s.mapPingGroups(nil); err != nil || got.value != "0 65535" {
		t.Errorf("range = %q, %v, want 0 65535", got.value, err)
	}
}
