package integration

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// secondNetwork is a CNI plugin that adds an interface net1 of another bridge, as Multus does for a second network: it
// runs the bridge plugin with a configuration of its own.
const secondNetwork = `#!/bin/sh
export CNI_IFNAME=net1
exec %s <%s
`

// TestVMNetworks: a virtual machine has all interfaces of its pod with the addresses of both IP families, and reaches
// the pods of another handler by each, as they reach it.
func TestVMNetworks(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	plugins, err := filepath.Abs("../../bin/cni")
	if err != nil {
		t.Fatal(err)
	}
	k := start(t, fmt.Sprintf("network.bin_dirs = [%q, %q]", bin, plugins))
	k.addSecondNetwork(bin, filepath.Join(plugins, "bridge"))
	vm, other := k.mixedPod(vmHandler()), k.mixedPod("runc")
	links := k.exec(vm.web, "ip -o addr")
	for _, name := range []string{"eth0", "net1"} {
		here, there := k.addresses(vm.web, name), k.addresses(other.web, name)
		if len(here) != len(there) || len(here) == 0 {
			t.Fatalf("%s = %v in the virtual machine, %v in the other pod: want as many addresses\n%s", name, here, there,
				links)
		}
		for i := range here {
			k.exec(vm.web, "ping -c 1 -W 10 "+there[i])
			k.exec(other.web, "ping -c 1 -W 10 "+here[i])
		}
	}
	status := k.podStatus(vm.id).GetNetwork()
	if status.GetIp() != k.addresses(vm.web, "eth0")[0] {
		t.Errorf("pod IP = %s, want that of eth0:\n%s", status.GetIp(), links)
	}
	if len(status.GetAdditionalIps()) == 0 {
		t.Log("this machine has no IPv6")
		return
	}
	six := status.GetAdditionalIps()[0].GetIp()
	routes := k.exec(vm.web, "ip -6 route")
	if !strings.Contains(routes, " dev eth0") || !strings.Contains(routes, " dev net1") {
		t.Errorf("IPv6 routes = %s, want those of both interfaces", routes)
	}
	k.exec(vm.web, fmt.Sprintf("httpd -p [%s]:8080 -h /tmp", six))
	if got, want := k.getForwarded(vm.id, 8080), "I am "+vmHandler()+"\n"; got != want {
		t.Errorf("response over a forwarded port of the IPv6 address = %q, want %q", got, want)
	}
}

// addSecondNetwork adds the second network to the configuration, with the families that the first one has.
func (k *kubelet) addSecondNetwork(bin, bridgePlugin string) {
	k.Helper()
	bridge := fmt.Sprintf("pt%08x", os.Getpid())
	conf := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %[1]q, "type": "bridge", "bridge": %[1]q, "ipam": {
		"type": "host-local", "dataDir": %[2]q, "ranges": [[{"subnet": "10.130.%[3]d.0/24"}]%[4]s]}}`,
		bridge, k.Path("ips2"), os.Getpid()%256, k.secondIPv6())
	path := filepath.Join(bin, "conf")
	k.ok("write the second network", os.WriteFile(path, []byte(conf), 0o644))
	script := fmt.Sprintf(secondNetwork, bridgePlugin, path)
	k.ok("write its plugin", os.WriteFile(filepath.Join(bin, "second"), []byte(script), 0o755))
	k.changeNetwork(`"plugins":[`, `"plugins":[{"type":"second"},`)
	k.Cleanup(func() { _ = exec.Command("ip", "link", "del", bridge).Run() }) // there is none if no pod ran
}

// secondIPv6 returns a further range of addresses, empty if the first network has no IPv6.
func (k *kubelet) secondIPv6() string {
	conf, err := os.ReadFile(k.Path("net.d", "10-test.conflist"))
	k.ok("read the network's configuration", err)
	if !strings.Contains(string(conf), "fd00:") {
		return ""
	}
	return fmt.Sprintf(`, [{"subnet": "fd00:9058:%x::/64"}]`, os.Getpid()%0xffff)
}

// addresses returns the addresses of an interface in a container, but for link-local ones.
func (k *kubelet) addresses(container, name string) (found []string) {
	k.Helper()
	for field := range strings.FieldsSeq(k.exec(container, "ip -o addr show dev "+name)) {
		ip, _, err := net.ParseCIDR(field)
		if err == nil && !ip.IsLinkLocalUnicast() {
			found = append(found, ip.String())
		}
	}
	return found
}

// TestVMUnusable: a handler of virtual machines without a guest image is not ready, and says how to build one.
func TestVMUnusable(t *testing.T) {
	t.Parallel()
	k := start(t, `runtime.handlers.vm-none.type = "shim"`, `runtime.handlers.vm-none.path = "containerd-shim-podvm-v1"`,
		`runtime.handlers.vm-none.options.driver = "uml"`, `runtime.handlers.vm-none.options.images = "/nonexistent"`)
	_, err := k.Runtime.RunPodSandbox(k.ctx(),
		&cri.RunPodSandboxRequest{Config: k.podConfig(), RuntimeHandler: "vm-none"})
	k.refused("RunPodSandbox", err, "podd-vm-image", codes.Unavailable)
}
