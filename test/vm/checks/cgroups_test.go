package checks

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func resources(r *cri.LinuxContainerResources) func(*cri.ContainerConfig) {
	return func(c *cri.ContainerConfig) { c.Linux.Resources = r }
}

func TestContainerIsAScopeInThePodsSlice(t *testing.T) {
	k := newKubelet(t)
	k.runPod()
	id := k.start("sleep 10000")
	scope := filepath.Base(k.cgroup(id)) // fails unless it is in the slice
	if got := show(t, scope, "Slice"); got != podSlice {
		t.Errorf("systemd has the scope in %q, want %q", got, podSlice)
	}
	if got := show(t, scope, "ActiveState"); got != "active" {
		t.Errorf("the scope is %s", got)
	}
	if got := k.exec(id, "cat /proc/1/cgroup"); got != "0::/" {
		t.Errorf("the container sees its cgroup as %q, want a cgroup namespace of its own", got)
	}
	if got := k.exec(id, "cat /proc/self/cgroup"); !strings.HasPrefix(got, "0::/podd-exec-") {
		t.Errorf("a command that can time out is in %q, want a cgroup of its own in the container's", got)
	}
	// what a container does must not be charged to the daemon, nor end with it
	for pid := range strings.FieldsSeq(read(t, k.cgroup(id)+"/cgroup.procs")) {
		if got := cgroupOf(t, pid); strings.HasPrefix(got, "/system.slice") {
			t.Errorf("process %s is in %s", pid, got)
		}
	}
}

func TestLimitsAreInTheKernelAndInSystemd(t *testing.T) {
	k := newKubelet(t)
	k.runPod()
	id := k.start("sleep 10000", resources(&cri.LinuxContainerResources{
		CpuPeriod: 100_000, CpuQuota: 50_000, CpuShares: 512,
		MemoryLimitInBytes: 64 << 20, MemorySwapLimitInBytes: 64 << 20, CpusetCpus: "0",
		Unified: map[string]string{"memory.high": "50331648", "pids.max": "99"},
	}))
	k.limits(id, map[string]string{
		"cpu.max": "50000 100000", "memory.max": "67108864", "memory.swap.max": "0", "cpuset.cpus": "0",
		"memory.high": "50331648", "pids.max": "99",
	})
	_, err := k.runtime.UpdateContainerResources(t.Context(), &cri.UpdateContainerResourcesRequest{ContainerId: id,
		Linux: &cri.LinuxContainerResources{CpuPeriod: 100_000, CpuQuota: 25_000, MemoryLimitInBytes: 96 << 20}})
	k.ok("UpdateContainerResources", err)
	want := map[string]string{"cpu.max": "25000 100000", "memory.max": "100663296", "pids.max": "99", "cpuset.cpus": "0"}
	k.limits(id, want)

	// systemd writes what it believes at every reload: a limit that only the kernel knows would be lost
	systemctl(t, "daemon-reload")
	k.limits(id, want)
	if got := show(t, filepath.Base(k.cgroup(id)), "MemoryMax"); got != "100663296" {
		t.Errorf("systemd has MemoryMax=%s", got)
	}
	// and it would take away the devices that the container was given
	k.exec(id, "echo x >/dev/null && head -c 1 /dev/urandom >/dev/zero")
}

func (k *kubelet) limits(id string, want map[string]string) {
	k.Helper()
	for file, v := range want {
		if got := k.limit(id, file); got != v {
			k.Errorf("%s is %q, want %q", file, got, v)
		}
	}
}

func TestOOMKilled(t *testing.T) {
	k := newKubelet(t)
	k.runPod()
	id := k.start("exec dd if=/dev/zero of=/dev/null bs=200M count=1",
		resources(&cri.LinuxContainerResources{MemoryLimitInBytes: 32 << 20, MemorySwapLimitInBytes: 32 << 20}))
	if st := k.exited(id); st.Reason != "OOMKilled" || st.ExitCode != 137 {
		t.Errorf("reason %q, exit code %d, message %q; want OOMKilled, 137", st.Reason, st.ExitCode, st.Message)
	}
}

func TestSingleProcessOOMKillSparesTheContainer(t *testing.T) {
	k := newKubelet(t)
	k.runPod()
	id := k.start("dd if=/dev/zero of=/dev/null bs=200M count=1; echo status $?; exec sleep 10000",
		resources(&cri.LinuxContainerResources{MemoryLimitInBytes: 32 << 20, MemorySwapLimitInBytes: 32 << 20}))
	k.eventually("the child was killed", func() bool { return strings.Contains(k.log(), "status 137") })
	if st := k.status(id); st.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container is %v, want it running: memory.oom.group was not asked for", st.State)
	}
}

func TestExecTimeoutKillsTheTree(t *testing.T) {
	k := newKubelet(t)
	k.runPod()
	id := k.start("exec sleep 10000")
	start := time.Now()
	_, err := k.runtime.ExecSync(t.Context(), &cri.ExecSyncRequest{ContainerId: id, Timeout: 3, Cmd: []string{"sh", "-c",
		"sleep 20001 & setsid sleep 20002 & (setsid sh -c 'sleep 20003 & sleep 20004' &) ; sleep 20005"}})
	if err == nil || !strings.Contains(err.Error(), "DeadlineExceeded") {
		t.Errorf("after the timeout: %v, want DeadlineExceeded", err)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
	k.eventually("the command's whole tree has ended",
		func() bool { return !strings.Contains(k.exec(id, "ps -o args"), "sleep 2000") })
	if st := k.status(id); st.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container is %v", st.State)
	}
	for _, below := range []string{"/podd-exec-*", "/*/podd-exec-*"} { // crun's containers are in a cgroup below the scope
		k.eventually("no cgroup of a command is left", func() bool {
			kids, _ := filepath.Glob(k.cgroup(id) + below)
			return len(kids) == 0
		})
	}
}

func TestStopEndsEveryProcess(t *testing.T) {
	k := newKubelet(t)
	k.runPod()
	id := k.start("trap '' TERM; (setsid sleep 30001 &); setsid sh -c 'trap \"\" TERM; sleep 30002' & while :; do " +
		"sleep 1; done")
	dir := k.cgroup(id)
	_, err := k.runtime.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: id, Timeout: 1})
	k.ok("StopContainer", err)
	if st := k.exited(id); st.ExitCode != 137 {
		t.Errorf("exit code %d", st.ExitCode)
	}
	k.eventually("the scope is gone", func() bool {
		_, err := os.Stat(dir)
		return errors.Is(err, unix.ENOENT)
	})
}
