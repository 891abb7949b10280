package suite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// cgroupFile reads a file of the pod's cgroup, which it finds by the pod's UID. v1 is controller/file on cgroup v1, v2
// the file on cgroup v2; both may be patterns.
func (k *scene) cgroupFile(p *corev1.Pod, v1, v2 string) string {
	k.Helper()
	controller, file, _ := strings.Cut(v1, "/")
	for _, at := range [][2]string{{controller, file}, {"", v2}} {
		for _, qos := range []string{"", "burstable", "besteffort"} {
			pattern := filepath.Join("/sys/fs/cgroup", at[0], c.Node(k.node).Cgroup(), "kubepods", qos, "pod"+string(p.UID),
				at[1])
			found, err := filepath.Glob(pattern)
			k.ok("look for "+pattern, err)
			if len(found) == 1 {
				data, err := os.ReadFile(found[0])
				k.ok("read the cgroup", err)
				return strings.TrimSpace(string(data))
			}
		}
	}
	k.Errorf("no file %s or %s in a cgroup of pod %s, want one", v1, v2, p.Name)
	return ""
}

// The cgroups of the three QoS classes have the limits of their pods. Their names are those of cgroupfs, although the
// kubelet's configuration says systemd: the kubelet has asked podd for the cgroup driver.
func TestQualityOfService(t *testing.T) {
	k := parallel(t)
	sleep := "containers: [{name: c, image: BUSYBOX, command: [sleep, '10000']"
	k.pod("guaranteed", sleep+", resources: {limits: {cpu: 250m, memory: 48Mi}}}]")
	k.pod("burstable", sleep+", resources: {requests: {cpu: 100m, memory: 16Mi}, limits: {memory: 64Mi}}}]")
	k.pod("besteffort", sleep+"}]")
	g, b, e := k.ready("guaranteed"), k.ready("burstable"), k.ready("besteffort")
	k.same("class", string(g.Status.QOSClass+b.Status.QOSClass+e.Status.QOSClass), "GuaranteedBurstableBestEffort")
	k.same("memory of the guaranteed pod", k.cgroupFile(g, "memory/memory.limit_in_bytes", "memory.max"), "50331648")
	k.same("memory of the burstable pod", k.cgroupFile(b, "memory/memory.limit_in_bytes", "memory.max"), "67108864")
	k.contains("cpu of the guaranteed pod", k.cgroupFile(g, "cpu/cpu.cfs_quota_us", "cpu.max"), "25000")
	k.same("processes of the pod", k.cgroupFile(e, "pids/pids.max", "pids.max"), "500")
	for name, want := range map[string]string{"guaranteed": "-997", "besteffort": "1000"} {
		if got := k.sh(name, "cat /proc/1/oom_score_adj"); got != want && os.Getenv("container") == "" && lowersOOM() {
			t.Errorf("oom_score_adj of %s = %s, want %s", name, got, want)
		}
	}
}

// lowersOOM reports whether oom_score_adj can be lowered, which needs CAP_SYS_RESOURCE.
func lowersOOM() bool {
	data, err := os.ReadFile("/proc/self/status")
	var caps uint64
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "CapBnd:") {
			_, err = fmt.Sscanf(line, "CapBnd: %x", &caps)
		}
	}
	return err == nil && caps&(1<<24) != 0
}

// A pod cannot have more processes than the node allows.
func TestProcessLimit(t *testing.T) {
	k := parallel(t)
	k.run("p", `
containers:
- name: c
  image: BUSYBOX
  command: [sh, -c, "i=0; while [ $i -lt 600 ]; do sleep 10000 & i=$((i+1)); done; sleep 10000"]
`)
	k.eventually("the limit is reached", func(context.Context) error {
		if out := k.logs("p"); !strings.Contains(out, "can't fork") {
			return fmt.Errorf("log = %q, want one with %q", out, "can't fork")
		}
		return nil
	})
}

// The resources of a running container are changed. Its status and its cgroup then have the new values.
func TestResize(t *testing.T) {
	k := parallel(t)
	p := k.run("p", `
containers:
- name: c
  image: BUSYBOX
  command: [sleep, "10000"]
  resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: memory, restartPolicy: NotRequired}]
  resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 100m, memory: 64Mi}}
`)
	k.resize("p", "100m", "200m", "96Mi")
	after := k.resized("p", "200m", "96Mi")
	k.same("restarts", container(after, "c").RestartCount, int32(0))
	k.same("container", container(after, "c").ContainerID, container(p, "c").ContainerID)
	k.contains("cpu of the pod", k.cgroupFile(p, "cpu/cpu.cfs_quota_us", "cpu.max"), "20000")
	k.same("memory of the pod", k.cgroupFile(p, "memory/memory.limit_in_bytes", "memory.max"), "100663296")
	if a := container(after, "c").AllocatedResources; a.Cpu().Cmp(resource.MustParse("100m")) != 0 {
		t.Errorf("allocated resources = %v, want 100m CPU", a)
	}
	text := k.kubectl("get", "pod", "p", "-o", "yaml")
	k.contains("the pod", text, "cpu: 200m", "memory: 96Mi")
	k.resize("p", "50m", "100m", "64Mi")
	k.resized("p", "100m", "64Mi")
}

// A resize with the policy RestartContainer restarts the container.
func TestResizeWithRestart(t *testing.T) {
	k := parallel(t)
	k.run("p", `
containers:
- name: c
  image: BUSYBOX
  command: [sleep, "10000"]
  resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]
  resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 100m, memory: 64Mi}}
`)
	k.resize("p", "50m", "100m", "96Mi")
	p := k.resized("p", "100m", "96Mi")
	k.same("restarts", container(p, "c").RestartCount, int32(1))
}

func (k *scene) resize(name, request, cpu, memory string) {
	k.Helper()
	k.kubectl("patch", "pod", name, "--subresource=resize", "-p", fmt.Sprintf(
		`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":%q},"limits":{"cpu":%q,"memory":%q}}}]}}`, request,
		cpu, memory))
}

func (k *scene) resized(name, cpu, memory string) *corev1.Pod {
	k.Helper()
	return k.until(name, "is resized", func(p *corev1.Pod) bool {
		for _, cond := range p.Status.Conditions {
			if cond.Type == corev1.PodResizeInProgress || cond.Type == corev1.PodResizePending {
				return false
			}
		}
		s := container(p, "c")
		return s.State.Running != nil && s.Resources != nil && s.Resources.Limits.Cpu().Cmp(resource.MustParse(cpu)) == 0 &&
			s.Resources.Limits.Memory().Cmp(resource.MustParse(memory)) == 0
	})
}

// A pod that exceeds its limit of ephemeral storage is evicted, by podd's statistics of its root filesystem.
func TestEphemeralStorage(t *testing.T) {
	k := parallel(t)
	k.pod("p", `
containers:
- name: c
  image: BUSYBOX
  command: [sh, -c, "dd if=/dev/urandom of=/big bs=1M count=8; sleep 10000"]
  resources: {limits: {ephemeral-storage: 4Mi}}
`)
	p := k.until("p", "was evicted", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	k.same("reason", p.Status.Reason, "Evicted")
}
