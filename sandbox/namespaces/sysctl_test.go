package namespaces

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

func TestCheckSysctls(t *testing.T) {
	all := Request{Net: "/n", IPC: "/i", UTS: "/u"}
	tests := []struct {
		key  string
		r    Request
		want string // part of the error, "" for none
	}{
		{"net.ipv4.ip_forward", all, ""},
		{"net/ipv4/ip_forward", all, ""},
		{"net.ipv4.conf.eth0/1.forwarding", all, ""},
		{"net/ipv4/conf/eth0.1/forwarding", all, ""},
		{"net.core.somaxconn", Request{Net: "/n"}, ""},
		{"kernel.shm_rmid_forced", all, ""},
		{"kernel/sem", all, ""},
		{"kernel.msgmax", Request{IPC: "/i"}, ""},
		{"fs.mqueue.msg_max", all, ""},
		{"kernel.hostname", all, ""},
		{"kernel.domainname", Request{UTS: "/u"}, ""},

		{"net.ipv4.ip_forward", Request{IPC: "/i", UTS: "/u"}, "network namespace, so it belongs to the node"},
		{"kernel.shmmax", Request{Net: "/n", UTS: "/u"}, "IPC namespace, so it belongs to the node"},
		{"fs.mqueue.msg_max", Request{Net: "/n"}, "belongs to the node"},
		{"kernel.hostname", Request{Net: "/n", IPC: "/i"}, "UTS namespace, so it belongs to the node"},
		{"kernel.domainname", Request{}, "belongs to the node"},

		{"kernel.core_pattern", all, "is not namespaced: it belongs to the node"},
		{"kernel.shmmax.x", all, "not namespaced"},
		{"kernel.shm_something_new", all, "not namespaced"},
		{"kernel.sem+kernel.core_pattern", all, "not namespaced"}, // CVE-2022-0811
		{"kernel", all, "is not a key"},
		{"net", all, "is not a key"},
		{"network.x", all, "not namespaced"},
		{"net.", all, "component"},
		{"vm.swappiness", all, "not namespaced"},
		{"fs.mqueue", all, "not namespaced"},
		{"fs.mqueue.a.b", all, "not namespaced"},
		{"", all, "is not a key"},
		{".", all, "is not a key"},
		{"/net/ipv4/ip_forward", all, "is not a key"},
		{"net/../kernel/core_pattern", all, `component ".."`},
		{"net.ipv4.//.core_pattern", all, `component ".."`}, // two slashes are two dots
		{"net/ipv4/./x", all, `component "."`},
		{"net..ipv4", all, "component"},
		{"net//ipv4", all, "component"},
		{"net.ipv4.ip_forward\n", all, "component"},
		{"net.ipv4.ip forward", all, "component"},
		{"net.ipv4.\x00", all, "component"},
		{"net.ipv4.ip_forwärd", all, "component"},
		{"net." + strings.Repeat("a", 300), all, "component"},
	}
	for _, tt := range tests {
		t.Run(tt.key, func(t *testing.T) {
			tt.r.Sysctls = map[string]string{tt.key: "1"}
			err := CheckSysctls(tt.r)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an invalid argument with %q", err, tt.want)
			}
		})
	}
}

func TestCheckSysctlValues(t *testing.T) {
	for value, ok := range map[string]bool{
		"1": true, "": true, "32768\t60999": true, "32768 60999": true, "bbr": true,
		"1\n2": false, "1\x002": false, "\x7f": false, strings.Repeat("1", 5000): false,
	} {
		err := CheckSysctls(Request{Net: "/n", Sysctls: map[string]string{"net.ipv4.ip_forward": value}})
		if ok != (err == nil) {
			t.Errorf("value %.20q: error %v, want ErrInvalidArgument", value, err)
		}
	}
}

func TestSplitKey(t *testing.T) {
	for key, want := range map[string][]string{
		"net.ipv4.conf.eth0/1.forwarding": {"net", "ipv4", "conf", "eth0.1", "forwarding"},
		"net/ipv4/conf/eth0.1/forwarding": {"net", "ipv4", "conf", "eth0.1", "forwarding"},
		"net.ipv4.conf.eth0.forwarding":   {"net", "ipv4", "conf", "eth0", "forwarding"},
		"kernel/msgmax":                   {"kernel", "msgmax"},
	} {
		if got, err := splitKey(key); err != nil || !slices.Equal(got, want) {
			t.Errorf("splitKey(%q) = %q, %v, want %q", key, got, err, want)
		}
	}
}

// TestSysctlsNeverReachTheNode asks for sysctls that exist on the node under the same names.
func TestSysctlsNeverReachTheNode(t *testing.T) {
	p, dir := newPinner(t), t.TempDir()
	names := map[string]string{
		"net/ipv4/ip_default_ttl": "77", "kernel/shmmni": "123", "kernel/msgmax": "9999", "fs/mqueue/queues_max": "7",
		"kernel/domainname": "evil",
	}
	before := map[string]string{}
	r := allPins(dir)
	r.Sysctls = map[string]string{}
	for name, value := range names {
		data, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			t.Fatal(err)
		}
		before[name] = string(data)
		r.Sysctls[name] = value
	}
	if err := p.Pin(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	inside(t, r, func() error {
		var errs []error
		for name, value := range names {
			errs = append(errs, expectFile("/proc/sys/"+name, value))
		}
		return errors.Join(errs...)
	})
	for name, value := range before {
		if data, err := os.ReadFile("/proc/sys/" + name); err != nil || string(data) != value {
			t.Errorf("%s of the node changed from %q to %q (%v)", name, value, data, err)
		}
	}
	if err := p.Unpin(t.Context(), r.Net, r.IPC, r.UTS); err != nil {
		t.Error(err)
	}
}

func TestInterfaceSysctlsWaitForTheInterface(t *testing.T) {
	p, dir := newPinner(t), t.TempDir()
	r := Request{Net: filepath.Join(dir, "net"), Sysctls: map[string]string{
		"net.ipv4.conf.eth0.forwarding": "1", "net.ipv4.conf.default.forwarding": "0", "net.ipv4.conf.lo.rp_filter": "2",
	}}
	if err := p.Pin(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Unpin(t.Context(), r.Net); err != nil {
			t.Error(err)
		}
	}()
	if err := p.Sysctl(t.Context(), r.Net, r.Sysctls); !errdefs.IsInvalidArgument(err) ||
		!strings.Contains(err.Error(), "eth0") {
		t.Errorf("Sysctl of an absent interface: error %v, want ErrInvalidArgument", err)
	}
	ns, err := netns.GetFromPath(r.Net)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	handle, err := netlink.NewHandleAt(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	if err := handle.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}}); err != nil {
		t.Fatal(err)
	}
	if err := p.Sysctl(t.Context(), r.Net, r.Sysctls); err != nil {
		t.Error(err)
	}
	inside(t, r, func() error {
		return errors.Join(expectFile("/proc/sys/net/ipv4/conf/eth0/forwarding", "1"),
			expectFile("/proc/sys/net/ipv4/conf/lo/rp_filter", "2"))
	})
}

func TestSysctlOfNoInterfaceDoesNothing(t *testing.T) {
	// The namespace does not exist, and need not.
	if err := New("").Sysctl(
		t.Context(), "/nonexistent", map[string]string{"net.ipv4.ip_forward": "1", "kernel.sem": "1"},
	); err != nil {
		t.Error(err)
	}
}

func TestSysctlNeedsANetworkNamespace(t *testing.T) {
	needRoot(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{"net.ipv4.conf.eth0.forwarding": "1"}
	for _, path := range []string{file, "/proc/self/ns/uts", "/nonexistent", "relative"} {
		if err := New("").Sysctl(t.Context(), path, keys); err == nil {
			t.Errorf("Sysctl in %s succeeded", path)
		}
	}
}

// FuzzSysctlKey: whatever is accepted stays below /proc/sys and is one of the namespaced names.
func FuzzSysctlKey(f *testing.F) {
	for _, s := range []string{
		"net.ipv4.conf.eth0/1.forwarding", "kernel.shmmax", "fs/mqueue/x", "kernel.hostname", "net/../x", "a", ".",
		"net.ipv4.//",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		r := Request{Net: "/n", IPC: "/i", UTS: "/u", Sysctls: map[string]string{key: "1"}}
		all, err := r.sysctls()
		if err != nil {
			if !errdefs.IsInvalidArgument(err) {
				t.Errorf("splitKey(%q): error %v, want ErrInvalidArgument", key, err)
			}
			return
		}
		path := filepath.Join("/proc/sys", strings.Join(all[0].parts, "/"))
		if path != "/proc/sys/"+strings.Join(all[0].parts, "/") {
			t.Errorf("%q leads to %s", key, path)
		}
		for _, prefix := range []string{"/proc/sys/net/", "/proc/sys/kernel/", "/proc/sys/fs/mqueue/"} {
			if strings.HasPrefix(path, prefix) {
				return
			}
		}
		t.Errorf("%q leads to %s", key, path)
	})
}
