package integration

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestAfterReboot: a reboot takes every process away, /run, the network devices and the packet filter; records, images
// and the plugins' files stay. The pods are not ready then and can be removed, which gives their addresses back, the
// same pods can be made again at once, and no image is fetched.
func TestAfterReboot(t *testing.T) {
	t.Parallel()
	k := start(t)
	l := k.newLife()
	l.upTo(3)
	created := k.create(l.podID, k.containerConfig([]string{"true"}), l.pod)
	ended, _ := k.runIn(l.podID, l.pod, []string{"sh", "-c", "exit 9"})
	k.exited(ended)
	stopped, _ := k.sleeper()
	k.stopPod(stopped)

	k.ok("kill podd", k.Kill9())
	powerOff(k, l.podID, l.containerID, created)
	asked := len(k.registry.Requests())
	k.ok("start podd", k.Start(k.ctx()))

	for _, pod := range []string{l.podID, stopped} {
		if st := k.podStatus(pod); st.State != cri.PodSandboxState_SANDBOX_NOTREADY {
			t.Errorf("pod %s is %v", pod, st.State)
		}
	}
	for id, code := range map[string]int32{l.containerID: 255, created: 255, ended: 9} {
		if st := k.container(id); st.State != cri.ContainerState_CONTAINER_EXITED || st.ExitCode != code {
			t.Errorf("container %s is %v, exit code %d %s, want %d", id, st.State, st.ExitCode, st.Reason, code)
		}
	}
	_, err := k.tryCreate(l.podID, k.containerConfig([]string{"true"}), l.pod)
	k.refused("a container in a pod of another boot", err, "", codes.FailedPrecondition)

	next := *l // what the kubelet does: the same pod, the next attempt
	next.pod.Metadata.Attempt++
	next.upTo(4)
	if next.ip == l.ip {
		t.Errorf("address %s has been given away again while the old pod has it", l.ip)
	}
	k.removePod(l.podID)
	k.removePod(stopped)
	k.removePod(next.podID)
	if ips, err := filepath.Glob(k.Path("ips", "*", "10.*")); err != nil || len(ips) > 0 {
		t.Errorf("addresses are still given away: %v, %v", ips, err)
	}
	if more := k.registry.Requests()[asked:]; len(more) > 0 {
		t.Errorf("the images were there, and yet the registry was asked: %v", more)
	}
}

// powerOff takes away what a reboot of the machine does. A reboot cannot be had here; its traces can.
func powerOff(k *kubelet, pod string, containers ...string) {
	k.Helper()
	for _, c := range containers {
		k.ok("kill the container", killContainer(k, c))
	}
	unmountBelow(k, k.Path("run"))
	unmountBelow(k, k.Path("root"))
	k.ok("drop the pod's packet filter rules", dropRules(k, pod))
	bridge, err := netlink.LinkByName(k.Bridge)
	k.ok("find the bridge", err)
	k.ok("remove the bridge", netlink.LinkDel(bridge))
	k.ok("empty the run directory", os.RemoveAll(k.Path("run")))
	k.ok("make it again", os.Mkdir(k.Path("run"), 0o755))
	otherBoot(k)
}

// otherBoot makes the records those of another boot of the kernel than this one.
func otherBoot(k *kubelet) {
	k.Helper()
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	k.ok("read the boot id", err)
	records, err := filepath.Glob(k.Path("root", "pods", "*", "record.json"))
	k.ok("find the records", err)
	for _, file := range records {
		data, err := os.ReadFile(file)
		k.ok("read a record", err)
		_, body, _ := bytes.Cut(data, []byte("\n"))
		other := strings.Replace(string(body), strings.TrimSpace(string(id)), "11111111-2222-3333-4444-555555555555", 1)
		if other == string(body) {
			k.Fatalf("record %s does not tell its boot:\n%s", file, body)
		}
		k.ok("write a record", os.WriteFile(file,
			fmt.Appendf(nil, "{\"v\":1,\"sha256\":\"%x\"}\n%s", sha256.Sum256([]byte(other)), other), 0o600))
	}
}
