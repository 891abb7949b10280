package integration

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestPowerLossOfPods simulates a power failure right after the answers of a kubelet's calls: unwritten data is lost,
// and the machine is rebooted. Whatever of the statuses has reached the disk, the pods are listed and not ready, a
// reported exit code is the same, no record of the network is lost, and nothing of the pods is left once they are
// removed. Of addresses only the files stay that the power failure has emptied, since host-local does not sync them: a
// check names them. With noauto_da_alloc, ext4 leaves replaced files empty, as other filesystems do.
func TestPowerLossOfPods(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options   string
		addresses bool // host-local's files are on the disk, too
	}{
		"addresses":              {"auto_da_alloc", true},
		"statuses":               {"noauto_da_alloc", false},
		"statuses and addresses": {"noauto_da_alloc", true},
	} {
		t.Run(name, func(t *testing.T) {
			k := start(t)
			disk := k.newDisk(c.options + ",commit=300") // in seconds: the journal writes what is synced only
			if c.addresses {
				k.bindAddresses()
				t.Cleanup(k.unbindAddresses)
			}
			lost := map[string]int{}
			for range soak(2, 20) {
				n := k.newPods()
				disk.powerLoss(func() {
					n.reboot()
					if c.addresses {
						k.unbindAddresses()
					}
				})
				disk.mount()
				if c.addresses {
					k.bindAddresses()
				}
				changeBootID(k)
				n.countLost(lost)
				k.ok("start podd", k.Start(k.ctx()))
				n.checkRebooted()
				n.remove()
				k.freeEmptied()
			}
			t.Logf("found after the losses: %v", lost)
			if lost["lost"] == 0 || lost["network"] > 0 || lost["address"] > 0 != c.addresses {
				t.Errorf("want some statuses lost, no network records, addresses: %v", c.addresses)
			}
		})
	}
}

// bindAddresses has host-local's files on podd's root, until unbindAddresses.
func (k *kubelet) bindAddresses() {
	k.Helper()
	k.ok("make the directory of addresses", os.MkdirAll(k.Path("root", "ips"), 0o755))
	k.ok("bind the addresses", unix.Mount(k.Path("root", "ips"), k.Path("ips"), "", unix.MS_BIND, ""))
}

func (k *kubelet) unbindAddresses() {
	k.Helper()
	k.ok("unbind the addresses", unix.Unmount(k.Path("ips"), 0))
}

// podsInAllStates are the pods and containers of a node.
type podsInAllStates struct {
	*kubelet
	l              *life // with a running container
	ended, created string
	another        string // a pod with the container running
	running        string
	stopped, ready string
}

// newPods makes them. The last two calls are the answer with an exit, which is synced, and the stop of a pod, which is
// not: an fsync after the stop would commit it, too.
func (k *kubelet) newPods() *podsInAllStates {
	k.Helper()
	n := &podsInAllStates{kubelet: k, l: k.newLife()}
	n.l.upTo(3)
	stopped, sleeper := k.sleeper()
	n.stopped = stopped
	n.created = k.create(n.l.podID, k.containerConfig([]string{"true"}), n.l.pod)
	n.ready, _ = k.pod()
	n.another, n.running = k.sleeper()
	k.stopContainer(sleeper, 0) // its exit would be synced by the stop of the pod
	n.ended, _ = k.runIn(n.l.podID, n.l.pod, []string{"sh", "-c", "exit 9"})
	k.exited(n.ended)
	k.stopPod(n.stopped)
	return n
}

// reboot ends all that the pods have on the machine, but for files on podd's root.
func (n *podsInAllStates) reboot() {
	n.Helper()
	for _, pod := range []string{n.another, n.ready} {
		n.ok("drop the pod's packet filter rules", dropRules(n.kubelet, pod))
	}
	simulateReboot(n.kubelet, n.l.podID, n.l.containerID, n.created, n.running)
}

// countLost counts the statuses on the disk by what is found, and those that are not as they were when the power was
// lost as "lost"; and files of the network without content, see countEmpty.
func (n *podsInAllStates) countLost(lost map[string]int) {
	n.Helper()
	for path, want := range map[string]string{
		n.l.podID: "ready", n.another: "ready", n.ready: "ready", n.stopped: "notready",
		n.l.podID + "/containers/" + n.l.containerID: "running", n.l.podID + "/containers/" + n.created: "created",
		n.another + "/containers/" + n.running: "running", n.l.podID + "/containers/" + n.ended: "exited",
	} {
		data, _ := os.ReadFile(n.Path("root", "pods", path, "status.json")) // an absent one is lost
		found := "damaged"
		for _, state := range []string{"creating", "created", "running", "exited", "ready", "stopping", "notready"} {
			if strings.Contains(string(data), `"state": "`+state+`"`) {
				found = state
			}
		}
		lost[found]++
		if found != want {
			lost["lost"]++
		}
		if want == "exited" && found != want {
			n.Errorf("status of the container that had exited = %s, want %s", found, want)
		}
	}
	for _, pod := range []string{n.l.podID, n.another, n.ready} { // the fourth is stopped
		if info, err := os.Stat(n.Path("root", "network", pod+".json")); err != nil || info.Size() == 0 {
			lost["network"]++
		}
	}
	lost["address"] += len(n.emptied())
}

// emptied returns the files of addresses that have no content.
func (k *kubelet) emptied() (files []string) {
	k.Helper()
	paths, err := filepath.Glob(k.Path("ips/*/*"))
	k.ok("list the addresses", err)
	for _, path := range paths {
		info, err := os.Stat(path)
		if _, no := netip.ParseAddr(filepath.Base(path)); no == nil && err == nil && info.Size() == 0 {
			files = append(files, path)
		}
	}
	return files
}

// freeEmptied does the remedy of an operator: it removes the files of addresses that a check finds to be empty.
func (k *kubelet) freeEmptied() {
	k.Helper()
	files := k.emptied()
	for _, path := range files {
		then := time.Now().Add(-time.Hour) // a new one may still be written
		k.ok("make the file older", os.Chtimes(path, then, then))
	}
	if len(files) > 0 {
		out, _, code := k.podd("check", "-o", "json")
		for _, path := range files {
			if code != 1 || !strings.Contains(out, path) {
				k.Errorf("check = %d, %s, want 1 and %s", code, out, path)
			}
			k.ok("free the address", os.Remove(path))
		}
	}
	k.checkFindsNothing("without emptied addresses")
}

func (n *podsInAllStates) checkRebooted() {
	n.Helper()
	for _, pod := range []string{n.l.podID, n.another, n.ready, n.stopped} {
		n.eventually("pod "+pod+" is not ready", func() bool {
			return n.podStatus(pod).State == cri.PodSandboxState_SANDBOX_NOTREADY
		})
	}
	for id, code := range map[string]int32{n.l.containerID: 255, n.running: 255, n.created: 255, n.ended: 9} {
		if st := n.exited(id); st.ExitCode != code {
			n.Errorf("container %s: exit code = %d (%s), want %d", id, st.ExitCode, st.Reason, code)
		}
	}
	if kept, err := filepath.Glob(n.Path("root", "quarantine", "*")); err != nil || len(kept) > 0 {
		n.Errorf("quarantine = %v, %v, want it empty", kept, err)
	}
}

// remove makes one of the pods again, with the next attempt, and removes all.
func (n *podsInAllStates) remove() {
	n.Helper()
	next := *n.l
	next.pod.Metadata.Attempt++
	next.upTo(4)
	for _, pod := range []string{n.l.podID, n.another, n.ready, n.stopped, next.podID} {
		n.stopPod(pod)
		n.removePod(pod)
	}
	emptied := n.emptied()
	for _, pattern := range []string{"ips/*/10.*", "root/network/*.json", "root/pods/*", "root/storage/rootfs/*"} {
		left, err := filepath.Glob(n.Path(pattern))
		left = slices.DeleteFunc(left, func(path string) bool { return slices.Contains(emptied, path) })
		if err != nil || len(left) > 0 {
			n.Errorf("%s after the removal = %v, %v, want none but emptied addresses", pattern, left, err)
		}
	}
}
