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

// TestAfterReboot simulates a reboot: processes, /run, network devices and packet filter rules are gone; records,
// images and the plugins' files remain. The pods are not ready then and can be removed, which releases their addresses,
// the same pods can be created again at once, and no image is pulled.
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
	simulateReboot(k, l.podID, l.containerID, created)
	asked := len(k.registry.Requests())
	k.ok("start podd", k.Start(k.ctx()))

	for _, pod := range []string{l.podID, stopped} {
		if st := k.podStatus(pod); st.State != cri.PodSandboxState_SANDBOX_NOTREADY {
			t.Errorf("state of pod %s = %v, want SANDBOX_NOTREADY", pod, st.State)
		}
	}
	for id, code := range map[string]int32{l.containerID: 255, created: 255, ended: 9} {
		if st := k.container(id); st.State != cri.ContainerState_CONTAINER_EXITED || st.ExitCode != code {
			t.Errorf("container %s = %v, exit code %d (%s), want EXITED, %d", id, st.State, st.ExitCode, st.Reason, code)
		}
	}
	_, err := k.tryCreate(l.podID, k.containerConfig([]string{"true"}), l.pod)
	k.refused("a container in a pod of another boot", err, "", codes.FailedPrecondition)

	next := *l // the same pod with the next attempt, as the kubelet does
	next.pod.Metadata.Attempt++
	next.upTo(4)
	if next.ip == l.ip {
		t.Errorf("IP of the new pod = %s, want another than the old pod's", next.ip)
	}
	k.removePod(l.podID)
	k.removePod(stopped)
	k.removePod(next.podID)
	if ips, err := filepath.Glob(k.Path("ips", "*", "10.*")); err != nil || len(ips) > 0 {
		t.Errorf("allocated addresses after removal = %v, %v, want none", ips, err)
	}
	if more := k.registry.Requests()[asked:]; len(more) > 0 {
		t.Errorf("registry requests after the reboot = %v, want none", more)
	}
}

// simulateReboot kills the containers, removes mounts, packet filter rules, the bridge and the run directory, and makes
// the records those of another boot.
func simulateReboot(k *kubelet, pod string, containers ...string) {
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
	changeBootID(k)
}

// changeBootID replaces the boot id in the records by another one.
func changeBootID(k *kubelet) {
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
			k.Fatalf("record %s lacks the boot id %s, want it in:\n%s", file, strings.TrimSpace(string(id)), body)
		}
		k.ok("write a record", os.WriteFile(file,
			fmt.Appendf(nil, "{\"v\":1,\"sha256\":\"%x\"}\n%s", sha256.Sum256([]byte(other)), other), 0o600))
	}
}
