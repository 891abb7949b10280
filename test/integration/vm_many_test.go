package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestVMMany starts pods in virtual machines at once, runs a command in each, and removes them at once. Each answers
// for itself, and nothing is left. It logs times and memory.
func TestVMMany(t *testing.T) {
	t.Parallel()
	k := start(t)
	k.have(busybox)
	pods := make([]vmOfMany, machinesAtOnce())
	began := time.Now()
	atOnce(pods, func(p *vmOfMany) error { return p.start(k) })
	up := time.Since(began)
	for i, p := range pods {
		k.ok(fmt.Sprintf("start pod %d", i), p.err)
	}
	k.checkMonitors(len(pods))
	memory := k.machineMemory()
	for i, p := range pods {
		if got, want := k.exec(p.ctr, "hostname"), p.cfg.Hostname+"\n"; got != want {
			t.Errorf("host name in pod %d = %q, want %q", i, got, want)
		}
	}
	began = time.Now()
	atOnce(pods, func(p *vmOfMany) error { return p.remove(k) })
	for i, p := range pods {
		k.ok(fmt.Sprintf("remove pod %d", i), p.err)
	}
	t.Logf("%d pods: up in %.1fs, %d MiB of memory for each, removed in %.1fs", len(pods), up.Seconds(),
		memory>>20/len(pods), time.Since(began).Seconds())
	if left := k.machineMemory(); left > 0 {
		t.Errorf("processes of machines use %d bytes after all pods are removed, want none", left)
	}
	if left := k.pods(nil); len(left) > 0 {
		t.Errorf("pods = %v, want none", left)
	}
}

// checkMonitors checks that the monitor of each machine is a separate user, without capabilities.
func (k *kubelet) checkMonitors(machines int) {
	k.Helper()
	users := map[int]bool{}
	for pid := range k.machineProcesses() {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // empty if it has just ended
		fields := map[string]string{}
		for line := range strings.Lines(string(status)) {
			key, value, _ := strings.Cut(line, ":")
			fields[key] = strings.TrimSpace(value)
		}
		if !slices.Contains(monitors, fields["Name"]) {
			continue
		}
		var user int
		_, err := fmt.Sscan(fields["Uid"], &user)
		if err != nil || user < 0x70000000 || strings.Trim(fields["CapPrm"], "0") != "" {
			k.Errorf("monitor %d has user %q and capabilities %q, want one of the monitors' users and none", pid,
				fields["Uid"], fields["CapPrm"])
		}
		users[user] = true
	}
	if len(users) != machines {
		k.Errorf("the monitors' users are %v, want %d", users, machines)
	}
}

// machinesAtOnce is how many machines TestVMMany starts. On two processors, 20 emulated ones do not boot in the time
// that the shim gives them.
func machinesAtOnce() int {
	if vmHandler() == "vm-qemu" {
		return soak(2, 5)
	}
	return soak(3, 20)
}

// vmOfMany is one of the pods, with the error of what was last done to it.
type vmOfMany struct {
	cfg      *cri.PodSandboxConfig
	pod, ctr string
	err      error
}

// atOnce does f to all pods at the same time.
func atOnce(pods []vmOfMany, f func(*vmOfMany) error) {
	var all sync.WaitGroup
	for i := range pods {
		all.Go(func() { pods[i].err = f(&pods[i]) })
	}
	all.Wait()
}

// start starts the pod with one container.
func (p *vmOfMany) start(k *kubelet) error {
	p.cfg = k.podConfig()
	if err := os.MkdirAll(p.cfg.LogDirectory, 0o755); err != nil {
		return err
	}
	r, err := k.Runtime.RunPodSandbox(k.ctx(), &cri.RunPodSandboxRequest{Config: p.cfg, RuntimeHandler: vmHandler()})
	if err != nil {
		return err
	}
	p.pod = r.PodSandboxId
	if p.ctr, err = k.tryCreate(p.pod, k.containerConfig([]string{"sleep", "10000"}), p.cfg); err != nil {
		return err
	}
	_, err = k.Runtime.StartContainer(k.ctx(), &cri.StartContainerRequest{ContainerId: p.ctr})
	return err
}

func (p *vmOfMany) remove(k *kubelet) error {
	if _, err := k.Runtime.StopPodSandbox(k.ctx(), &cri.StopPodSandboxRequest{PodSandboxId: p.pod}); err != nil {
		return err
	}
	_, err := k.Runtime.RemovePodSandbox(k.ctx(), &cri.RemovePodSandboxRequest{PodSandboxId: p.pod})
	return err
}

// machineMemory is what the shims of the daemon's pods and their descendants use, in bytes: their proportional set
// sizes (proc_pid_smaps(5)).
func (k *kubelet) machineMemory() (sum int) {
	k.Helper()
	for pid := range k.machineProcesses() {
		sum += proportionalSize(pid)
	}
	return sum
}

// machineProcesses are the shims of the daemon's pods and their descendants, with the CPU time that each has used, in
// clock ticks.
func (k *kubelet) machineProcesses() map[int]int {
	k.Helper()
	parents, ticks := map[int]int{}, map[int]int{}
	shims := map[int]bool{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	k.ok("list processes", err)
	for _, file := range stats {
		data, _ := os.ReadFile(file) // empty if it has just ended
		f := strings.Fields(string(data))
		if len(f) < 15 || f[2] == "Z" {
			continue
		}
		pid := number(f[0])
		parents[pid], ticks[pid] = number(f[3]), number(f[13])+number(f[14])
		cwd, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		shims[pid] = f[1] == "(containerd-shim)" && strings.HasPrefix(cwd, k.Path("run")+"/")
	}
	found := map[int]int{}
	for pid := range parents {
		for at := pid; at > 1; at = parents[at] {
			if shims[at] {
				found[pid] = ticks[pid]
				break
			}
		}
	}
	return found
}

// number is 0 for what is none: a name with spaces shifts the fields of a process that is not of a machine.
func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// proportionalSize is that of one process, in bytes; 0 if it has ended.
func proportionalSize(pid int) (n int) {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(data)) {
		if _, err := fmt.Sscanf(line, "Pss: %d kB", &n); err == nil {
			return n << 10
		}
	}
	return 0
}
