package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
)

// netnsDir is where ip netns and other tools find network namespaces, spelled as they do.
const netnsDir = "/var/run/netns"

// TestNetnsDir: network namespaces are where other tools look for them, and nothing of others in that directory is
// touched: not by garbage collection, check or wipe, and not by another podd.
func TestNetnsDir(t *testing.T) {
	t.Parallel()
	set := daemon.Options{Set: []string{fmt.Sprintf("network.netns_dir = %q", netnsDir)}}
	k, other := startWith(t, set), startWith(t, set)
	foreign := []string{fmt.Sprint("podd-test-", os.Getpid()), "podd-" + fmt.Sprintf("%064x", os.Getpid())}
	for _, name := range foreign {
		ipNetns(k, "add", name)
		t.Cleanup(func() { ipNetns(k, "del", name) })
	}
	pod, _ := k.pod()
	theirs, _ := other.pod()
	checkNamed(k, pod)

	lost, _ := k.pod()
	k.ok("kill podd", k.Kill9())
	k.ok("lose the record of a pod", os.RemoveAll(k.Path("root", "pods", lost)))
	k.ok("start podd", k.Start(k.ctx()))
	k.eventually("the pin of a pod without a record is removed", func() bool {
		_, err := os.Lstat(filepath.Join(netnsDir, "podd-"+lost))
		return err != nil
	})
	k.checkFindsNothing("after the garbage collection")
	checkNamed(k, pod)
	k.ok("stop podd", k.Stop())
	if out, errs, code := k.podd("wipe", "--yes"); code != 0 {
		k.Errorf("wipe: exit status = %d, want 0: %s%s", code, out, errs)
	}
	names := ipNetns(k, "list")
	for _, name := range append(foreign, "podd-"+theirs) {
		if !slices.Contains(names, name) {
			k.Errorf("ip netns list = %v, want %s still there", names, name)
		}
	}
	if slices.Contains(names, "podd-"+pod) {
		k.Errorf("ip netns list = %v, want no pod of a wiped podd", names)
	}
	k.ok("start podd", k.Start(k.ctx()))
}

// checkNamed checks that ip netns finds the pod's namespace, and that plugins got the path as it is configured.
func checkNamed(k *kubelet, pod string) {
	k.Helper()
	if names := ipNetns(k, "list"); !slices.Contains(names, "podd-"+pod) {
		k.Errorf("ip netns list = %v, want podd-%s", names, pod)
	}
	record, err := os.ReadFile(k.Path("root", "network", pod+".json"))
	k.ok("read the record of the network", err)
	if want := `"netns": "` + netnsDir + "/podd-" + pod + `"`; !strings.Contains(string(record), want) {
		k.Errorf("record of the network = %s, want %s", record, want)
	}
}

// ipNetns runs ip netns, and returns the first word of each line.
func ipNetns(k *kubelet, args ...string) []string {
	k.Helper()
	out, err := exec.Command("ip", append([]string{"netns"}, args...)...).CombinedOutput()
	if err != nil {
		k.Fatalf("ip netns %v: %v: %s", args, err, out)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		names = append(names, strings.Fields(line)[0])
	}
	return names
}

// TestLostNamespaces takes the pinned namespaces of running pods away, as clean-up scripts do. The pods are not ready,
// and the kubelet, which makes others then, can stop and remove them.
func TestLostNamespaces(t *testing.T) {
	t.Parallel()
	k := start(t, runcShim()...)
	type loss struct {
		handler, kind string
		remove        bool // the file, too
	}
	losses := []loss{{"gvisor", "net", true}, {"gvisor-shim", "net", false}, {"runc", "user", false}}
	for _, handler := range []string{"runc", "crun", "runc-shim"} {
		losses = append(losses, loss{handler, "net", true}, loss{handler, "net", false}, loss{handler, "ipc", false},
			loss{handler, "uts", true})
	}
	pods := map[loss]string{}
	for _, l := range losses {
		cfg := k.podConfig()
		if l.kind == "user" {
			ids := []*cri.IDMapping{{HostId: 200_000, Length: 65_536}}
			cfg.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &cri.UserNamespace{
				Mode: cri.NamespaceMode_POD, Uids: ids, Gids: ids,
			}
		}
		pod := k.runPod(cfg, l.handler)
		pods[l] = pod
		k.runIn(pod, cfg, []string{"sleep", "1000"}, func(c *cri.ContainerConfig) {
			options := cfg.Linux.GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
			c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = options
		})
		path := k.Path("run", "pods", pod, l.kind)
		if l.kind == "net" {
			path = k.Path("run", "netns", pod)
		}
		k.ok("unmount a namespace", unix.Unmount(path, unix.MNT_DETACH))
		if l.remove {
			k.ok("remove the file of a namespace", os.Remove(path))
		}
		if strings.HasPrefix(l.handler, "gvisor") {
			continue // its containers are in the sandbox that has the namespaces
		}
		_, err := k.tryCreate(pod, k.containerConfig([]string{"sleep", "1000"}), cfg)
		k.refused(fmt.Sprintf("create after %+v", l), err, l.kind+" namespace", codes.FailedPrecondition)
	}
	for l, pod := range pods {
		k.eventually(fmt.Sprintf("the pod after %+v is not ready", l), func() bool {
			return k.podStatus(pod).State == cri.PodSandboxState_SANDBOX_NOTREADY
		})
		k.stopPod(pod)
		k.removePod(pod)
	}
	k.checkFindsNothing("after the removal")
}
