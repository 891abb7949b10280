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
	if want := "crio-" + id + ".scope"; scope != want {
		t.Errorf("cgroup = %s, want %s", scope, want)
	}
	if got := show(t, scope, "Slice"); got != podSlice {
		t.Errorf("Slice of %s = %q, want %q", scope, got, podSlice)
	}
	if got := show(t, scope, "ActiveState"); got != "active" {
		t.Errorf("ActiveState of %s = %q, want active", scope, got)
	}
	if got := k.exec(id, "cat /proc/1/cgroup"); got != "0::/" {
		t.Errorf("/proc/1/cgroup in the container = %q, want 0::/ (a cgroup namespace of its own)", got)
	}
	if got := k.exec(id, "cat /proc/self/cgroup"); !strings.HasPrefix(got, "0::/podd-exec-") {
		t.Errorf("cgroup of a command with a timeout = %q, want 0::/podd-exec-*, below the container's", got)
	}
	// A container's usage must not be charged to the daemon, and systemd must not kill it with the daemon.
	for pid := range strings.FieldsSeq(read(t, k.cgroup(id)+"/cgroup.procs")) {
		if got := cgroupOf(t, pid); strings.HasPrefix(got, "/system.slice") {
			t.Errorf("cgroup of the container's process %s = %s, want none below /system.slice", pid, got)
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

	// At a reload systemd writes the limits of its units again: one that it does not know would be lost.
	systemctl(t, "daemon-reload")
	k.limits(id, want)
	if got := show(t, filepath.Base(k.cgroup(id)), "MemoryMax"); got != "100663296" {
		t.Errorf("MemoryMax = %s, want 100663296", got)
	}
	// A reload must not revoke access to devices either.
	k.exec(id, "echo x >/dev/null && head -c 1 /dev/urandom >/dev/zero")
}

func (k *kubelet) limits(id string, want map[string]string) {
	k.Helper()
	for file, v := range want {
		if got := k.limit(id, file); got != v {
			k.Errorf("%s = %q, want %q", file, got, v)
		}
	}
}

func TestOOMKilled(t *testing.T) {
	k := newKubelet(t)
	k.runPod()
	id := k.start("exec dd if=/dev/zero of=/dev/null bs=200M count=1",
		resources(&cri.LinuxContainerResources{MemoryLimitInBytes: 32 << 20, MemorySwapLimitInBytes: 32 << 20}))
	const message = `the kernel killed process "dd": the container reached its memory limit`
	if st := k.exited(id); st.Reason != "OOMKilled" || st.ExitCode != 137 || !strings.HasPrefix(st.Message, message) {
		t.Errorf("reason %q, exit code %d, message %q; want OOMKilled, 137, %q", st.Reason, st.ExitCode, st.Message, message)
	}
}

// TestBlockIO: the class of a pod's annotation is in force, also after systemd has rewritten the limits.
func TestBlockIO(t *testing.T) {
	k := newKubelet(t)
	k.runPod(func(p *cri.PodSandboxConfig) {
		p.Annotations = map[string]string{"blockio.resources.beta.kubernetes.io/pod": "slow"}
	})
	id := k.start("sleep 10000")
	for range 2 {
		if got := k.limit(id, "io.max"); !strings.Contains(got, "rbps=3000000") {
			t.Errorf("io.max = %q, want rbps=3000000", got)
		}
		systemctl(t, "daemon-reload")
	}
}

// TestWritableCgroups: with the handler's writable_cgroups a container in a user namespace divides its own cgroup, as
// systemd does, but changes none of its limits; and podd still runs commands in it and removes it. A container without
// a user namespace has read-only cgroups.
func TestWritableCgroups(t *testing.T) {
	if strings.Contains(read(t, "/etc/podd/podd.toml.d/60-writable.toml"), "crun") {
		t.Skip("crun gives the cgroup to no user of a namespace that it joins")
	}
	k := newKubelet(t)
	k.handler = "writable"
	ids := []*cri.IDMapping{{HostId: 1 << 20, ContainerId: 0, Length: 1 << 16}}
	k.runPod(func(p *cri.PodSandboxConfig) {
		p.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &cri.UserNamespace{
			Mode: cri.NamespaceMode_POD, Uids: ids, Gids: ids}
	})
	id := k.start("exec sleep 10000", resources(&cri.LinuxContainerResources{MemoryLimitInBytes: 64 << 20}))
	got := k.exec(id, `cd /sys/fs/cgroup && mkdir -p app/deep && echo 1 >app/cgroup.procs &&
		echo +memory +pids >cgroup.subtree_control && echo 32M >app/memory.max && cat app/memory.max /proc/1/cgroup`)
	if want := "33554432\n0::/app"; got != want {
		t.Errorf("limit and cgroup below the container's = %q, want %q", got, want)
	}
	for _, file := range []string{"memory.max", "pids.max", "cgroup.max.descendants", "cgroup.max.depth"} {
		k.exec(id, "! echo max >/sys/fs/cgroup/"+file)
	}
	k.exec(id, "cd /sys/fs/cgroup; for i in $(seq 11); do mkdir deeper && cd deeper || exit 0; done; exit 1")
	k.limits(id, map[string]string{"memory.max": "67108864", "cgroup.max.descendants": "1000", "cgroup.max.depth": "10"})
	got = k.exec(id, `mkdir /sys/fs/cgroup/many; cd /sys/fs/cgroup/many
		mkdir $(seq 1100) 2>/dev/null; ls | grep -c '^[0-9]'`)
	if n := number(t, got); n < 900 || n > 1000 {
		t.Errorf("the container has made %d cgroups, want nearly 1000", n)
	}
	k.exec(id, "true")
}

// TestCgroupsAreReadOnly: without a user namespace a container could lift its limits.
func TestCgroupsAreReadOnly(t *testing.T) {
	k := newKubelet(t)
	k.handler = "writable"
	k.runPod()
	k.exec(k.start("exec sleep 10000"), "! mkdir /sys/fs/cgroup/app")
}

// TestPrivilegedLeavesCgroups: a privileged container changes no option of the node's cgroup mount, of which nsdelegate
// protects other containers.
func TestPrivilegedLeavesCgroups(t *testing.T) {
	k := newKubelet(t)
	options := func() string {
		for line := range strings.Lines(read(t, "/proc/mounts")) {
			if f := strings.Fields(line); len(f) > 3 && f[1] == "/sys/fs/cgroup" {
				return f[3]
			}
		}
		return ""
	}
	before := options()
	if !strings.Contains(before, "nsdelegate") {
		t.Fatalf("options of the mount = %q, want nsdelegate", before)
	}
	k.runPod(func(p *cri.PodSandboxConfig) { p.Linux.SecurityContext.Privileged = true })
	id := k.start("exec sleep 10000", func(c *cri.ContainerConfig) { c.Linux.SecurityContext.Privileged = true })
	k.exec(id, "mkdir /sys/fs/cgroup/podd-test && rmdir /sys/fs/cgroup/podd-test && ls /sys/fs/cgroup/kubepods.slice")
	if after := options(); after != before {
		t.Errorf("options of the mount = %q, want %q as before", after, before)
	}
}

func TestSingleProcessOOMKillSparesTheContainer(t *testing.T) {
	k := newKubelet(t)
	k.runPod()
	id := k.start("dd if=/dev/zero of=/dev/null bs=200M count=1; echo status $?; exec sleep 10000",
		resources(&cri.LinuxContainerResources{MemoryLimitInBytes: 32 << 20, MemorySwapLimitInBytes: 32 << 20}))
	k.eventually("the child was killed", func() bool { return strings.Contains(k.log(), "status 137") })
	if st := k.status(id); st.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("state after the OOM kill of a child = %v, want CONTAINER_RUNNING: memory.oom.group is not set", st.State)
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
		t.Errorf("ExecSync with a timeout = %v, want DeadlineExceeded", err)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("ExecSync with a timeout of 3s took %v, want at most 30s", took)
	}
	k.eventually("all processes of the command have ended",
		func() bool { return !strings.Contains(k.exec(id, "ps -o args"), "sleep 2000") })
	if st := k.status(id); st.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("state after the exec's timeout = %v, want CONTAINER_RUNNING", st.State)
	}
	for _, below := range []string{"/podd-exec-*", "/*/podd-exec-*"} { // crun's containers are in a cgroup below the scope
		k.eventually("the command's cgroup is removed", func() bool {
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
		t.Errorf("exit code = %d, want 137", st.ExitCode)
	}
	k.eventually("the scope is removed", func() bool {
		_, err := os.Stat(dir)
		return errors.Is(err, unix.ENOENT)
	})
}
