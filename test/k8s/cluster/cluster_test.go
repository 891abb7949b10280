package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestHosts tests what is not Kubernetes: namespaces, network, registry and podd, also after a reboot, and that nothing
// is left.
func TestHosts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root")
	}
	bin, err := filepath.Abs("../../../bin")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "podd-h-")
	if err != nil {
		t.Fatal(err)
	}
	c, err := layOut(Options{Dir: dir, Bin: bin, Nodes: []NodeOptions{{Name: "n1"}, {Name: "n2"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if _, err := os.Stat("/sys/class/net/" + c.Net.Link); err == nil {
			t.Errorf("link %s is left", c.Net.Link)
		}
	})
	n1, n2 := c.Nodes[0], c.Nodes[1]
	n1.PodCIDR, n2.PodCIDR = c.Net.Prefix+".128.0/24", c.Net.Prefix+".129.0/24"
	ctx := t.Context()
	for _, step := range []func() error{
		c.save, c.issueAll, c.Control.boot, c.wireControl, func() error { return c.startRegistry(ctx) },
		n1.layOut, func() error { return c.bootNode(n1) }, n2.layOut, func() error { return c.bootNode(n2) }, c.routeAll,
		func() error { return n1.StartPodd(ctx) }, func() error { return n2.StartPodd(ctx) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := n1.Crictl("pull", "registry.k8s.io/e2e-test-images/busybox:1.36.1-1"); err != nil {
		t.Fatalf("pull: %v %s", err, out)
	}
	for _, addr := range []string{n2.Addr, c.Control.Addr, c.Net.host(machineHost)} {
		// No process listens there: a host that is reached refuses the connection.
		if err := n1.do(func() error { return dial(addr + ":1") }); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connect from %s to %s = %v, want ECONNREFUSED", n1.Addr, addr, err)
		}
	}
	boot := func() string {
		out, err := n1.Run("cat", "/proc/sys/kernel/random/boot_id")
		if err != nil {
			t.Error(err)
		}
		return out
	}
	before := boot()
	frozen, err := freeze(n1)
	if err != nil {
		t.Fatal(err)
	}
	n1.Kubelet = Process{}
	if err := n1.off([]string{n1.Cgroup()}); err != nil {
		t.Fatal(err)
	}
	if n1.Podd.Alive() || n1.Holder.Alive() || frozen.Alive() || !n2.Podd.Alive() {
		t.Fatalf("after off: podd, holder and frozen process of n1 alive = %v, %v, %v, podd of n2 = %v; want only the last",
			n1.Podd.Alive(), n1.Holder.Alive(), frozen.Alive(), n2.Podd.Alive())
	}
	if err := c.unplug(n1); err != nil {
		t.Fatal(err)
	}
	if err := c.bootNode(n1); err != nil {
		t.Fatal(err)
	}
	if err := n1.StartPodd(ctx); err != nil {
		t.Fatal(err)
	}
	if after := boot(); after == before {
		t.Errorf("boot id after a reboot = %s, want another than before", after)
	}
	if out, err := n1.Crictl("images"); err != nil || !strings.Contains(out, "busybox") {
		t.Errorf("images after a reboot = %s, %v, want busybox among them", out, err)
	}
}

// freeze starts a process on the node and freezes it in a cgroup below the node's, if the machine has cgroup v1.
func freeze(n *Node) (Process, error) {
	p, err := n.start("frozen", "sleep", "infinity")
	if err != nil {
		return p, err
	}
	paths, unified, err := hierarchies()
	if err != nil || unified {
		return p, err
	}
	for _, h := range paths {
		if filepath.Base(h) != "freezer" {
			continue
		}
		dir := filepath.Join(h, n.Cgroup(), "frozen")
		return p, errors.Join(os.Mkdir(dir, 0o755),
			os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, p.Pid), 0),
			os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("FROZEN"), 0))
	}
	return p, errors.New("no freezer hierarchy")
}

func dial(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}
