package network_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/network/networktest"
)

// TestGeneric has the plugins of the CNI project, and others in their places.
func TestGeneric(t *testing.T) {
	others := buildPlugins(t, "ptp", "macvlan", "ipvlan")
	for name, test := range map[string]struct {
		plugins []string
		replace string // a plugin that is another program
		conf    string // instead of a bridge
		want    string // a part of the error, "" for none
	}{
		"bridge":             {},
		"all listed":         {plugins: []string{portmap, bandwidth, firewall}},
		"ptp":                {conf: listWith("ptp")},
		"macvlan":            {conf: listWith("macvlan")},
		"ipvlan":             {conf: listWith("ipvlan")},
		"not listed":         {plugins: []string{`{"type":"tuning"}`}, want: `"tuning"`},
		"a program so named": {plugins: []string{portmap}, replace: "portmap", want: `"portmap"`},
		"another main":       {replace: "bridge", want: `"bridge"`},
		"another IPAM":       {replace: "host-local", want: `"host-local"`},
		"not listed IPAM": {
			conf: `{"cniVersion":"1.0.0","name":"x","type":"bridge","ipam":{"type":"static"}}`, want: `"static"`,
		},
		"capability of the pod": {
			plugins: []string{`{"type":"firewall","capabilities":{"dns":true}}`}, want: `"dns"`,
		},
		"capability that it does not want": {
			plugins: []string{`{"type":"firewall","capabilities":{"dns":false}}`},
		},
		"missing plugin":   {plugins: []string{`{"type":"nowhere"}`}, want: "not in"},
		"no configuration": {conf: "{", want: "no valid CNI configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			b := networktest.NewBridge(t, "1.0.0", test.plugins...)
			cfg := b.Config()
			cfg.BinDirs = append(cfg.BinDirs, others)
			if test.replace != "" {
				bin := t.TempDir()
				replaceByAnother(t, filepath.Join(bin, test.replace))
				cfg.BinDirs = append([]string{bin}, cfg.BinDirs...)
			}
			if test.conf != "" {
				rewrite(t, b, test.conf)
			}
			c, err := network.New(cfg, discard())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			switch err := c.Generic(); {
			case test.want == "" && err != nil:
				t.Errorf("Generic = %v, want nil", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("Generic = %v, want an error with %s", err, test.want)
			}
		})
	}
}

// listWith returns a configuration of a plugin with host-local.
func listWith(plugin string) string {
	return fmt.Sprintf(`{"cniVersion":"1.0.0","name":"x","type":%q,"ipam":{"type":"host-local"}}`, plugin)
}

// buildPlugins builds plugins of the CNI project that no other test needs, and returns their directory.
func buildPlugins(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{"build", "-modfile=../contrib/tools/go.mod", "-o", dir + "/"}
	for _, name := range names {
		args = append(args, "github.com/containernetworking/plugins/plugins/main/"+name)
	}
	build := exec.Command("go", args...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build plugins: %v: %s", err, out)
	}
	return dir
}

func rewrite(t *testing.T, b *networktest.Bridge, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(b.ConfDir, "10-bridge.conflist"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestState: whatever would leave a pod without its network shows.
func TestState(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, b *networktest.Bridge, r network.Request){
		"configuration": func(t *testing.T, b *networktest.Bridge, _ network.Request) {
			b.Write("10-bridge.conflist", "1.0.0", portmap)
		},
		"plugin not listed": func(t *testing.T, b *networktest.Bridge, _ network.Request) {
			b.Write("10-bridge.conflist", "1.0.0", `{"type":"tuning"}`)
		},
		"bridge deleted": func(t *testing.T, b *networktest.Bridge, _ network.Request) {
			must(t, netlink.LinkDel(link(t, b.Name)))
		},
		"bridge made again": func(t *testing.T, b *networktest.Bridge, _ network.Request) {
			must(t, netlink.LinkDel(link(t, b.Name)))
			must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: b.Name}}))
			must(t, netlink.LinkSetUp(link(t, b.Name)))
		},
		"bridge down": func(t *testing.T, b *networktest.Bridge, _ network.Request) {
			must(t, netlink.LinkSetDown(link(t, b.Name)))
		},
		"port taken out of the bridge": func(t *testing.T, b *networktest.Bridge, _ network.Request) {
			must(t, netlink.LinkSetNoMaster(port(t, b)))
		},
		"port deleted": func(t *testing.T, b *networktest.Bridge, _ network.Request) {
			must(t, netlink.LinkDel(port(t, b)))
		},
		"interface deleted": func(t *testing.T, _ *networktest.Bridge, r network.Request) {
			must(t, networktest.InNetns(r.Netns, func() error { return netlink.LinkDel(link(t, "eth0")) }))
		},
		"interface renamed": func(t *testing.T, _ *networktest.Bridge, r network.Request) {
			rename(t, r.Netns, "eth0", "eth1")
		},
		"port replaced": func(t *testing.T, b *networktest.Bridge, _ network.Request) {
			old := port(t, b)
			must(t, errors.Join(netlink.LinkSetDown(old), netlink.LinkSetName(old, "former")))
			other := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{
				Name: old.Attrs().Name, MasterIndex: old.Attrs().MasterIndex, Flags: net.FlagUp,
			}, PeerName: "peer"}
			must(t, netlink.LinkAdd(other))
			t.Cleanup(func() { must(t, netlink.LinkDel(other)) })
		},
		"another namespace": func(t *testing.T, _ *networktest.Bridge, r network.Request) {
			other := networktest.NewNetns(t)
			must(t, networktest.InNetns(other, func() error {
				return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "peer"})
			}))
			must(t, unix.Mount(other, r.Netns, "", unix.MS_BIND, ""))
		},
		"detached": nil,
	} {
		t.Run(name, func(t *testing.T) {
			b := networktest.NewBridge(t, "1.0.0")
			c := start(t, b.Config())
			r := request(t, "pod1")
			setup(t, c, r)
			before, err := c.State(r.PodID)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := c.State(r.PodID); again != before || err != nil {
				t.Errorf("State again = %q, %v, want %q", again, err, before)
			}
			if spoil != nil {
				spoil(t, b, r)
			} else {
				teardown(t, c, r.PodID)
			}
			after, err := c.State(r.PodID)
			if err == nil && after == before {
				t.Errorf("State = %q, want another answer or an error", after)
			}
			if err == nil && (spoil == nil || strings.HasSuffix(name, "deleted")) {
				t.Errorf("State = %q, want an error: nothing is to be made of what is not there", after)
			}
			switch name { // what DEL needs
			case "another namespace":
				must(t, unix.Unmount(r.Netns, 0))
			case "interface renamed":
				rename(t, r.Netns, "eth1", "eth0")
			}
			teardown(t, c, r.PodID)
		})
	}
	t.Run("carrier", func(t *testing.T) {
		b := networktest.NewBridge(t, "1.0.0")
		c := start(t, b.Config())
		r := request(t, "pod1")
		setup(t, c, r)
		defer teardown(t, c, r.PodID)
		before, err := c.State(r.PodID)
		must(t, err)
		had := port(t, b).Attrs().Flags
		must(t, networktest.InNetns(r.Netns, func() error { return netlink.LinkSetDown(link(t, "eth0")) }))
		for end := time.Now().Add(10 * time.Second); port(t, b).Attrs().Flags == had; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("flags %v, want that the interface has lost its carrier", had)
			}
		}
		if after, err := c.State(r.PodID); err != nil || after != before {
			t.Errorf("State = %q, %v, want %q whatever the carrier is", after, err, before)
		}
	})
	t.Run("damaged record", func(t *testing.T) {
		cfg := networktest.NewBridge(t, "1.0.0").Config()
		c := start(t, cfg)
		must(t, os.WriteFile(filepath.Join(cfg.StateDir, "pod1.json"), []byte("{"), 0o600))
		if _, err := c.State("pod1"); !errors.Is(err, network.ErrDamaged) {
			t.Errorf("State = %v, want %v", err, network.ErrDamaged)
		}
		must(t, os.Remove(filepath.Join(cfg.StateDir, "pod1.json")))
	})
	t.Run("bad id", func(t *testing.T) {
		c := start(t, networktest.NewBridge(t, "1.0.0").Config())
		if _, err := c.State("../x"); !errdefs.IsInvalidArgument(err) {
			t.Errorf("State of ../x = %v, want an invalid argument", err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, name string) netlink.Link {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// rename renames an interface of a namespace.
func rename(t *testing.T, netns, from, to string) {
	t.Helper()
	must(t, networktest.InNetns(netns, func() error {
		l := link(t, from)
		return errors.Join(netlink.LinkSetDown(l), netlink.LinkSetName(l, to))
	}))
}

// port returns the node's interface in the bridge.
func port(t *testing.T, b *networktest.Bridge) netlink.Link {
	t.Helper()
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	bridge := link(t, b.Name).Attrs().Index
	for _, l := range links {
		if l.Attrs().MasterIndex == bridge {
			return l
		}
	}
	t.Fatal(fmt.Errorf("no interface is in %s", b.Name))
	return nil
}

func BenchmarkState(b *testing.B) {
	bridge := networktest.NewBridge(b, "1.0.0", portmap, bandwidth, firewall)
	c := start(b, bridge.Config())
	r := request(b, "pod1")
	setup(b, c, r)
	defer teardown(b, c, r.PodID)
	for b.Loop() {
		if _, err := c.State(r.PodID); err != nil {
			b.Fatal(err)
		}
	}
}
