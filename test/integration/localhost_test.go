package integration

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestLocalhostOfNode: a pod that makes its own packets, as the default capability NET_RAW allows, cannot reach what
// listens on the node's 127.0.0.1 (CVE-2020-8558). Neither podd nor the bridge plugin lets it. The portmap plugin does,
// for the first host port, so that host ports can be reached at 127.0.0.1: the kubelet has a rule for that reason, and
// nodes without a kubelet can set snat to false.
func TestLocalhostOfNode(t *testing.T) {
	t.Parallel()
	k := start(t)
	none := func(*cri.PodSandboxConfig) {}
	mapped := func(c *cri.PodSandboxConfig) {
		c.PortMappings = []*cri.PortMapping{{HostPort: int32(k.freePort()), ContainerPort: 80}}
	}
	for _, c := range []struct {
		name    string
		prepare func(*kubelet)
		pod     func(*cri.PodSandboxConfig)
		reached bool
	}{
		{"no host port", func(*kubelet) {}, none, false},
		{"host port without snat", withoutSNAT, mapped, false},
		{"host port", withSNAT, mapped, true},
		{"host port with the rule of the kubelet", kubeletRule, mapped, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := k.sub(t)
			c.prepare(k)
			pod, _ := k.pod(c.pod)
			if got := k.reachesLocalhost(pod); got != c.reached {
				t.Errorf("a packet of the pod reached 127.0.0.1 of the node = %v, want %v", got, c.reached)
			}
		})
	}
}

// withoutSNAT configures the portmap plugin to serve host ports at the node's addresses but 127.0.0.1.
func withoutSNAT(k *kubelet) {
	k.changeNetwork(`"type":"portmap"`, `"snat":false,"type":"portmap"`)
}

// withSNAT undoes withoutSNAT.
func withSNAT(k *kubelet) {
	k.changeNetwork(`"snat":false,"type":"portmap"`, `"type":"portmap"`)
}

// changeNetwork replaces text of the network's configuration, without its white space, and restarts podd.
func (k *kubelet) changeNetwork(old, with string) {
	k.Helper()
	path := k.Path("net.d", "10-test.conflist")
	conf, err := os.ReadFile(path)
	k.ok("read the network's configuration", err)
	var dense bytes.Buffer
	k.ok("compact it", json.Compact(&dense, conf))
	changed := strings.Replace(dense.String(), old, with, 1)
	if changed == dense.String() {
		k.Fatalf("the network's configuration has no %s: %s", old, conf)
	}
	k.ok("write the network's configuration", os.WriteFile(path, []byte(changed), 0o644))
	k.ok("restart podd", k.Restart(k.ctx(), k.Stop))
}

// kubeletRule adds what the kubelet has in its chain KUBE-FIREWALL, for the test's bridge alone.
func kubeletRule(k *kubelet) {
	rule := []string{"INPUT", "-i", k.Bridge, "-d", "127.0.0.0/8", "!", "-s", "127.0.0.0/8", "-m", "conntrack", "!",
		"--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP"}
	iptables := func(verb string) error {
		return exec.Command("iptables", append([]string{"-w", verb}, rule...)...).Run()
	}
	k.ok("add the rule", iptables("-I"))
	k.Cleanup(func() {
		if err := iptables("-D"); err != nil {
			k.Errorf("remove the rule: %v", err)
		}
	})
}

// reachesLocalhost reports whether a UDP packet of the pod to 127.0.0.1, sent to the bridge, reaches a socket there.
func (k *kubelet) reachesLocalhost(pod string) bool {
	k.Helper()
	listener, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	k.ok("listen on localhost", err)
	defer listener.Close()
	k.sendFromPod(pod, net.IPv4(127, 0, 0, 1), listener.LocalAddr().(*net.UDPAddr).Port)
	k.ok("set a deadline", listener.SetReadDeadline(time.Now().Add(500*time.Millisecond)))
	n, _, err := listener.ReadFromUDP(make([]byte, 100))
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		k.Fatalf("read: %v", err)
	}
	return n > 0
}

// sendFromPod sends a UDP packet from the pod's eth0 to the bridge, with any destination.
func (k *kubelet) sendFromPod(pod string, to net.IP, port int) {
	k.Helper()
	bridge, err := net.InterfaceByName(k.Bridge)
	k.ok("find the bridge", err)
	ip := net.ParseIP(k.podStatus(pod).GetNetwork().GetIp()).To4()
	raw, err := os.ReadFile(k.Path("root", "network", pod+".json"))
	k.ok("read the record of the network", err)
	_, path, _ := strings.Cut(string(raw), `"netns": "`)
	path, _, _ = strings.Cut(path, `"`)
	done := make(chan error)
	go func() {
		done <- inNetns(path, func() error { return sendFrame(bridge.HardwareAddr, ip, to.To4(), port) })
	}()
	k.ok("send a packet from the pod", <-done)
}

// inNetns calls f in the network namespace. The thread is put back: had the goroutine the process's first thread, which
// does not end with it, /proc/self/ns/net would stay that of the pod.
func inNetns(path string, f func() error) error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		return err
	}
	defer home.Close()
	pod, err := netns.GetFromPath(path)
	if err != nil {
		return err
	}
	defer pod.Close()
	if err := netns.Set(pod); err != nil {
		return err
	}
	err = f()
	return errors.Join(err, netns.Set(home))
}

// sendFrame sends an Ethernet frame with a UDP packet.
func sendFrame(gateway net.HardwareAddr, from, to net.IP, port int) error {
	eth0, err := net.InterfaceByName("eth0")
	if err != nil {
		return err
	}
	payload := []byte("from a pod")
	p := make([]byte, 14+20+8, 100)
	copy(p, gateway)
	copy(p[6:], eth0.HardwareAddr)
	p[12] = 8
	ip := p[14:34]
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(ip[2:], uint16(28+len(payload)))
	copy(ip[12:], from)
	copy(ip[16:], to)
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	udp := p[34:42]
	binary.BigEndian.PutUint16(udp, 4444)
	binary.BigEndian.PutUint16(udp[2:], uint16(port))
	binary.BigEndian.PutUint16(udp[4:], uint16(8+len(payload)))
	p = append(p, payload...)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, p, 0, &unix.SockaddrLinklayer{Ifindex: eth0.Index, Protocol: 8, Halen: 6})
}
