package network_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/network/networktest"
	"github.com/podd-project/podd/network/networktest/failpoint"
)

const (
	portmap   = `{"type":"portmap","capabilities":{"portMappings":true},"snat":true}`
	firewall  = `{"type":"firewall"}`
	bandwidth = `{"type":"bandwidth","capabilities":{"bandwidth":true}}`
)

func discard() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

func start(t testing.TB, stateDir string, cfg network.Config) *network.CNI {
	t.Helper()
	c, err := network.New(stateDir, cfg, discard())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	waitReady(t, c)
	return c
}

// waitReady waits for the plugins' first STATUS.
func waitReady(t testing.TB, c *network.CNI) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		err := c.Ready()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not ready: %v", err)
		}
	}
}

func request(t testing.TB, id string) network.Request {
	t.Helper()
	return networktest.Env{Netns: networktest.NewNetns}.Request(t, id)
}

func setup(t testing.TB, c *network.CNI, r network.Request) network.Result {
	t.Helper()
	result, err := c.Setup(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func teardown(t testing.TB, c *network.CNI, id string) {
	t.Helper()
	if err := c.Teardown(context.WithoutCancel(t.Context()), id); err != nil {
		t.Error(err)
	}
}

func TestSuite(t *testing.T) {
	for _, version := range []string{"0.4.0", "1.1.0"} { // without and with STATUS and GC
		t.Run("bridge "+version, func(t *testing.T) {
			networktest.Suite(t, func(t *testing.T) networktest.Env {
				b := networktest.NewBridge(t, version, portmap, firewall)
				cfg := b.Config()
				return networktest.Env{Network: start(t, b.StateDir, cfg), Netns: networktest.NewNetns}
			})
		})
	}
}

// serve answers every connection to address in the pod with the pod's name.
func serve(t testing.TB, netnsPath, netw, address string) (port uint16) {
	t.Helper()
	err := networktest.InNetns(netnsPath, func() error {
		l, err := net.Listen(netw, address)
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		port = netip.MustParseAddrPort(l.Addr().String()).Port()
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, "hello from "+address)
				conn.Close()
			}
		}()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func hear(t testing.TB, conn net.Conn, err error, want string) {
	t.Helper()
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if got, err := io.ReadAll(conn); err != nil || string(got) != want {
		t.Errorf("heard %q, %v, want %q", got, err, want)
	}
}

// nodeUp brings up the loopback interface of the network namespace that the tests run in.
func nodeUp(t testing.TB) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
}

// dial retries: the kernel first checks that the bridge's IPv6 address is unique, and until then a connection has a
// wrong source.
func dial(address string) (conn net.Conn, err error) {
	for range 20 {
		if conn, err = net.DialTimeout("tcp", address, time.Second); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

func TestPodAnswersOnItsAddressesPortsAndLocalhost(t *testing.T) {
	b := networktest.NewBridge(t, "1.0.0", portmap)
	nodeUp(t)
	c := start(t, b.StateDir, b.Config())
	r := request(t, "pod1")
	r.Ports = []network.PortMapping{{HostPort: 18080, ContainerPort: 8080, Protocol: "tcp"}}
	result := setup(t, c, r)
	if len(result.IPs) != 2 || !netip.MustParsePrefix(b.Subnet4).Contains(result.IPs[0]) ||
		!netip.MustParsePrefix(b.Subnet6).Contains(result.IPs[1]) {
		t.Errorf("addresses %v, want one of %s and one of %s", result.IPs, b.Subnet4, b.Subnet6)
	}
	serve(t, r.Netns, "tcp", ":8080")
	for _, address := range []string{
		netip.AddrPortFrom(result.IPs[0], 8080).String(), netip.AddrPortFrom(result.IPs[1], 8080).String(),
		b.Gateway4 + ":18080", "127.0.0.1:18080",
	} {
		conn, err := dial(address)
		hear(t, conn, err, "hello from :8080")
	}
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		port := serve(t, r.Netns, "tcp", address)
		conn, err := c.Dial(t.Context(), "pod1", port)
		hear(t, conn, err, "hello from "+address)
	}
	for _, ip := range result.IPs { // a server of the pod's address only, as with $(POD_IP)
		address := netip.AddrPortFrom(ip, 0).String()
		port := serve(t, r.Netns, "tcp", address)
		conn, err := c.Dial(t.Context(), "pod1", port)
		hear(t, conn, err, "hello from "+address)
	}
	if conn, err := c.Dial(t.Context(), "pod1", 1); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("Dial of a closed port = %v, %v, want ECONNREFUSED", conn, err)
	}
	if conn, err := c.Dial(t.Context(), "pod2", 80); !errdefs.IsNotFound(err) {
		t.Errorf("Dial of an unknown pod = %v, %v, want not found", conn, err)
	}
	teardown(t, c, "pod1")
	if conn, err := net.Dial("tcp", "127.0.0.1:18080"); err == nil {
		conn.Close()
		t.Error("the host port still answers")
	}
}

// TestRecordWrites: a plugin that passes on the result of the one before it costs no write to disk.
func TestRecordWrites(t *testing.T) {
	b := networktest.NewBridge(t, "1.0.0", portmap, firewall)
	c := start(t, b.StateDir, b.Config())
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	// Each write renames a temporary file of another name.
	if _, err := unix.InotifyAddWatch(fd, b.StateDir, unix.IN_MOVED_FROM); err != nil {
		t.Fatal(err)
	}
	setup(t, c, request(t, "pod1"))
	defer teardown(t, c, "pod1")
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	if err != nil {
		t.Fatal(err)
	}
	writes := 0
	for buf = buf[:n]; len(buf) > 0; writes++ {
		buf = buf[unix.SizeofInotifyEvent+binary.NativeEndian.Uint32(buf[12:]):]
	}
	if writes != 2 { // before the first plugin, and with the result of bridge
		t.Errorf("Setup wrote the record %d times, want 2", writes)
	}
}

// TestTeardownNeedsNothingButTheRecord: configuration, namespace and the daemon that made it are gone, as after a
// reboot with a new network installed.
func TestTeardownNeedsNothingButTheRecord(t *testing.T) {
	for name, vanish := range map[string]func(t *testing.T, netns string) error{
		"unmounted": func(_ *testing.T, netns string) error { return unix.Unmount(netns, unix.MNT_DETACH) },
		"gone": func(_ *testing.T, netns string) error {
			return errors.Join(unix.Unmount(netns, unix.MNT_DETACH), os.Remove(netns))
		},
		"there": func(*testing.T, string) error { return nil },
		// The state after an earlier DEL that was killed half-way.
		"without its interface": func(_ *testing.T, netns string) error {
			return networktest.InNetns(netns, func() error {
				link, err := netlink.LinkByName("eth0")
				if err != nil {
					return err
				}
				return netlink.LinkDel(link)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := networktest.NewBridge(t, "1.0.0", portmap, firewall)
			cfg := b.Config()
			c := start(t, b.StateDir, cfg)
			r := request(t, "pod1")
			r.Ports = []network.PortMapping{{HostPort: 18081, ContainerPort: 8080, Protocol: "udp", HostIP: "127.0.0.1"}}
			setup(t, c, r)
			if err := errors.Join(c.Close(), vanish(t, r.Netns), os.RemoveAll(b.ConfDir),
				os.Mkdir(b.ConfDir, 0o755)); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(b.ConfDir, "05.conflist"),
				[]byte(`{"cniVersion":"1.0.0","name":"other","plugins":[{"type":"loopback"}]}`), 0o644); err != nil {
				t.Fatal(err)
			}
			teardown(t, start(t, b.StateDir, cfg), "pod1")
		})
	}
}

// TestTeardownOfAnInterfaceWithoutAddresses: gVisor removes them, and the bridge plugin removes only the rules of those
// that it finds.
func TestTeardownOfAnInterfaceWithoutAddresses(t *testing.T) {
	b := networktest.NewBridge(t, "1.0.0") // which checks that no rule is left
	c := start(t, b.StateDir, b.Config())
	r := request(t, "taken-over")
	setup(t, c, r)
	err := networktest.InNetns(r.Netns, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		if err != nil {
			return err
		}
		for _, a := range addresses {
			err = errors.Join(err, netlink.AddrDel(link, &a))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	teardown(t, c, r.PodID)
}

// TestHalfFailedAddIsUndone: the plugins bridge and firewall have succeeded when the next one fails. The firewall
// plugin removes its rules only if DEL has the result, which libcni does not keep in that case.
func TestHalfFailedAddIsUndone(t *testing.T) {
	for _, action := range []string{failpoint.Fail, failpoint.Crash, failpoint.Print + `{"ips":[null]}`} {
		t.Run(action, func(t *testing.T) {
			bin := t.TempDir()
			p := failpoint.Install(t, bin)
			b := networktest.NewBridge(t, "1.0.0", firewall, p.Conf(""))
			cfg := b.Config()
			cfg.BinDirs = append(cfg.BinDirs, bin)
			c := start(t, b.StateDir, cfg)
			p.Set("ADD", action)
			if result, err := c.Setup(t.Context(), request(t, "pod1")); err == nil {
				t.Fatalf("Setup = %v, want an error", result)
			}
			out, err := exec.Command("iptables-save").Output()
			if err != nil || !strings.Contains(string(out), "-A CNI-FORWARD -s "+b.Subnet4[:strings.LastIndex(b.Subnet4, ".")]) {
				t.Errorf("test setup: the firewall plugin made no rule: %v\n%s", err, out)
			}
			teardown(t, c, "pod1")
		})
	}
}

// TestCrashAtEveryPlugin: the daemon dies while one of the plugins runs, before that has done anything, and another
// daemon starts.
func TestCrashAtEveryPlugin(t *testing.T) {
	for position := range 3 {
		t.Run(fmt.Sprint(position), func(t *testing.T) {
			bin := t.TempDir()
			p := failpoint.Install(t, bin)
			p.Set("ADD", failpoint.Hang)
			chain := []string{firewall, portmap}
			chain = append(chain[:position:position], append([]string{p.Conf("")}, chain[position:]...)...)
			b := networktest.NewBridge(t, "1.0.0", chain...)
			cfg := b.Config()
			cfg.BinDirs = append(cfg.BinDirs, bin)
			ctx, crash := context.WithCancel(t.Context())
			done := make(chan error)
			go func() {
				_, err := start(t, b.StateDir, cfg).Setup(ctx, request(t, "pod1"))
				done <- err
			}()
			for len(p.Calls("ADD")) == 0 {
				time.Sleep(time.Millisecond)
			}
			crash() // kills the plugin, as the daemon's death does
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("Setup = %v, want context.Canceled", err)
			}
			teardown(t, start(t, b.StateDir, cfg), "pod1")
		})
	}
}

func TestLoopbackIsUp(t *testing.T) {
	b := networktest.NewBridge(t, "1.0.0")
	c := start(t, b.StateDir, b.Config())
	r := request(t, "pod1")
	setup(t, c, r)
	ns, err := netns.GetFromPath(r.Netns)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	handle, err := netlink.NewHandleAt(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	lo, err := handle.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := handle.AddrList(lo, netlink.FAMILY_ALL)
	if err != nil || lo.Attrs().Flags&net.FlagUp == 0 || len(addrs) != 2 {
		t.Errorf("loopback has flags %v, addresses %v, %v, want up and 2 addresses", lo.Attrs().Flags, addrs, err)
	}
	teardown(t, c, "pod1")
}

func TestBandwidthIsLimited(t *testing.T) {
	b := networktest.NewBridge(t, "1.0.0", bandwidth)
	c := start(t, b.StateDir, b.Config())
	r := request(t, "pod1")
	r.Bandwidth = &network.Bandwidth{Ingress: 10_000_000, Egress: 5_000_000}
	setup(t, c, r)
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	rates := map[uint64]bool{}
	for _, l := range links {
		qdiscs, err := netlink.QdiscList(l)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range qdiscs {
			if tbf, ok := q.(*netlink.Tbf); ok {
				rates[tbf.Rate*8] = true
			}
		}
	}
	if len(rates) != 2 || !rates[10_000_000] || !rates[5_000_000] {
		t.Errorf("rates = %v, want 10 and 5 Mbit/s", rates)
	}
	teardown(t, c, "pod1")
}

func TestHandlerHasItsOwnConfiguration(t *testing.T) {
	b := networktest.NewBridge(t, "1.0.0")
	bin := t.TempDir()
	p := failpoint.Install(t, bin)
	cfg := b.Config()
	cfg.BinDirs = append(cfg.BinDirs, bin)
	c := start(t, b.StateDir, cfg)
	r := request(t, "pod1")
	r.ConfDir = t.TempDir()
	if _, err := c.Setup(t.Context(), r); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), r.ConfDir) {
		t.Errorf("Setup with an empty directory = %v, want an unavailable error that names it", err)
	}
	own := `{"cniVersion":"1.0.0","name":"own","plugins":[` + p.Conf("") + `]}`
	if err := os.WriteFile(filepath.Join(r.ConfDir, "10.conflist"), []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}
	if result := setup(t, c, r); result.IPs[0].String()+"/24" != failpoint.Address {
		t.Errorf("addresses = %v, want %s", result.IPs, failpoint.Address)
	}
	if err := os.RemoveAll(r.ConfDir); err != nil {
		t.Fatal(err)
	}
	teardown(t, c, "pod1")
	if calls := p.Calls("DEL"); len(calls) != 1 {
		t.Errorf("%d calls of DEL, want 1", len(calls))
	}
}

func TestSetupRefusesWhatIsNoPodNamespace(t *testing.T) {
	b := networktest.NewBridge(t, "1.0.0")
	c := start(t, b.StateDir, b.Config())
	own := filepath.Join(t.TempDir(), "own")
	file := filepath.Join(t.TempDir(), "file")
	for _, path := range []string{own, file} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("/proc/self/ns/net", own, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(own, unix.MNT_DETACH)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{own: "node's own", file: "not a network namespace",
		fifo: "not a network namespace", "/nonexistent": "no such file", "/proc/self/ns/net": "too many levels"} {
		r := network.Request{PodID: "pod1", PodName: "web", PodNamespace: "default", Netns: path}
		if _, err := c.Setup(t.Context(), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Setup = %v, want %q", path, err, want)
		}
	}
	if ids, err := c.Attachments(); err != nil || len(ids) != 0 {
		t.Errorf("Attachments = %v, %v, want none", ids, err)
	}
}

// TestSetupNeedsTheRecord: if the record cannot be written, nothing is done.
func TestSetupNeedsTheRecord(t *testing.T) {
	bin, p := installFailpoint(t)
	c := startFailpoint(t, bin, p, "1.0.0", nil)
	c.breakState(t)
	if _, err := c.Setup(t.Context(), request(t, "pod1")); err == nil {
		t.Error("Setup without a record succeeded")
	}
	if calls := p.Calls("ADD"); len(calls) != 0 {
		t.Errorf("calls of ADD = %+v, want none", calls)
	}
}

func BenchmarkSetupTeardown(b *testing.B) {
	for name, test := range map[string]struct {
		more []string
		skip bool
	}{
		"bridge":                            {},
		"bridge+portmap+firewall":           {more: []string{portmap, firewall}},
		"bridge+portmap+bandwidth":          {more: []string{portmap, bandwidth}},
		"bridge+portmap+bandwidth, skipped": {more: []string{portmap, bandwidth}, skip: true},
	} {
		b.Run(name, func(b *testing.B) {
			bridge := networktest.NewBridge(b, "1.0.0", test.more...)
			cfg := bridge.Config()
			cfg.SkipIdlePlugins = test.skip
			c := start(b, bridge.StateDir, cfg)
			r := request(b, "pod1")
			var took time.Duration
			for b.Loop() {
				begun := time.Now()
				setup(b, c, r)
				took += time.Since(begun)
				teardown(b, c, "pod1")
			}
			b.ReportMetric(float64(took.Microseconds())/float64(b.N)/1000, "ms/setup")
		})
	}
}

// BenchmarkReady measures the kubelet's Status while pods come and go.
func BenchmarkReady(b *testing.B) {
	bridge := networktest.NewBridge(b, "1.0.0")
	c := start(b, bridge.StateDir, bridge.Config())
	var wg sync.WaitGroup
	stop := make(chan struct{})
	r := request(b, "pod1")
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				setup(b, c, r)
				teardown(b, c, "pod1")
			}
		}
	})
	for b.Loop() {
		if err := c.Ready(); err != nil {
			b.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
}
