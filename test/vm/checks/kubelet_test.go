package checks

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/leak"
)

const (
	socket = "unix:///run/podd/podd.sock"
	// daemon is podd itself in the leak check's lines; some tests restart it.
	daemon  = "/bin/podd serve"
	busybox = "registry.k8s.io/e2e-test-images/busybox:1.29-2"
)

// kubelet acts as the kubelet of one test. At the test's end it removes the pod and the pod's slice, as a kubelet does,
// and the machine must be as before.
type kubelet struct {
	testing.TB
	runtime cri.RuntimeServiceClient
	images  cri.ImageServiceClient
	pod     *cri.PodSandboxConfig
	podID   string
	handler string // of the pod, "" for the default
}

func newKubelet(t *testing.T) *kubelet {
	t.Helper()
	leak.Check(t, leak.Options{Wait: 15 * time.Second, Ignore: []string{daemon}})
	conn, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{TB: t, runtime: cri.NewRuntimeServiceClient(conn), images: cri.NewImageServiceClient(conn)}
	t.Cleanup(func() { k.ok("close", conn.Close()) })
	t.Cleanup(k.removePod)
	return k
}

func (k *kubelet) ok(what string, err error) {
	k.Helper()
	if err != nil {
		k.Fatalf("%s: %v", what, err)
	}
}

// uid is the pod's, with the underscores that the kubelet puts into a slice's name.
const uid = "0b1c2d3e_0000_4000_8000_000000000001"

// podSlice is the cgroup of a burstable pod, as the kubelet names it, and podPath is where systemd puts it.
const (
	podSlice = "kubepods-burstable-pod" + uid + ".slice"
	podPath  = "/kubepods.slice/kubepods-burstable.slice/" + podSlice
)

// runPod runs a pod in a slice like the kubelet's.
func (k *kubelet) runPod(mods ...func(*cri.PodSandboxConfig)) {
	k.Helper()
	k.pod = &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: "pod", Namespace: "checks", Uid: strings.ReplaceAll(uid, "_", "-")},
		Hostname:     "pod",
		LogDirectory: k.TempDir(),
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: podSlice, SecurityContext: &cri.LinuxSandboxSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}}},
	}
	for _, m := range mods {
		m(k.pod)
	}
	r, err := k.runtime.RunPodSandbox(k.Context(), &cri.RunPodSandboxRequest{Config: k.pod, RuntimeHandler: k.handler})
	k.ok("RunPodSandbox", err)
	k.podID = r.PodSandboxId
}

// removePod removes the test's pod, and its slice, which a kubelet removes.
func (k *kubelet) removePod() {
	if k.podID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if _, err := k.runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: k.podID}); err != nil {
		k.Errorf("StopPodSandbox: %v", err)
	}
	if _, err := k.runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: k.podID}); err != nil {
		k.Errorf("RemovePodSandbox: %v", err)
	}
	if left, _ := filepath.Glob("/sys/fs/cgroup" + podPath + "/*/cgroup.procs"); len(left) != 0 {
		k.Errorf("cgroups left in the pod's slice: %v, want none", left)
	}
	systemctl(k, "stop", "kubepods.slice")
}

// start makes and starts a container of busybox and returns its id.
func (k *kubelet) start(command string, mods ...func(*cri.ContainerConfig)) string {
	k.Helper()
	_, err := k.images.PullImage(k.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: busybox}})
	k.ok("PullImage", err)
	cfg := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "ctr"},
		Image:    &cri.ImageSpec{Image: busybox},
		Command:  []string{"sh", "-c", command},
		LogPath:  "ctr.log",
		Linux: &cri.LinuxContainerConfig{
			Resources: &cri.LinuxContainerResources{},
			SecurityContext: &cri.LinuxContainerSecurityContext{
				NamespaceOptions: k.pod.Linux.SecurityContext.NamespaceOptions},
		},
	}
	for _, m := range mods {
		m(cfg)
	}
	r, err := k.runtime.CreateContainer(k.Context(),
		&cri.CreateContainerRequest{PodSandboxId: k.podID, Config: cfg, SandboxConfig: k.pod})
	k.ok("CreateContainer", err)
	_, err = k.runtime.StartContainer(k.Context(), &cri.StartContainerRequest{ContainerId: r.ContainerId})
	k.ok("StartContainer", err)
	return r.ContainerId
}

func (k *kubelet) status(id string) *cri.ContainerStatus {
	k.Helper()
	r, err := k.runtime.ContainerStatus(k.Context(), &cri.ContainerStatusRequest{ContainerId: id})
	k.ok("ContainerStatus", err)
	return r.Status
}

// exited waits until the container has exited.
func (k *kubelet) exited(id string) (st *cri.ContainerStatus) {
	k.Helper()
	k.eventually("the container has exited", func() bool {
		st = k.status(id)
		return st.State == cri.ContainerState_CONTAINER_EXITED
	})
	return st
}

// exec runs a shell command in a container, fails the test if that fails, and returns its output.
func (k *kubelet) exec(id, command string) string {
	k.Helper()
	r, err := k.runtime.ExecSync(k.Context(),
		&cri.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", command}, Timeout: 30})
	k.ok("ExecSync "+command, err)
	if r.ExitCode != 0 {
		k.Fatalf("ExecSync %s: exit code %d: %s%s", command, r.ExitCode, r.Stdout, r.Stderr)
	}
	return strings.TrimSpace(string(r.Stdout))
}

// eventually waits until f returns true, a minute at most.
func (k *kubelet) eventually(what string, f func() bool) {
	k.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if f() {
			return
		}
	}
	k.Fatalf("not within a minute: %s", what)
}

// log returns the container's log file.
func (k *kubelet) log() string { return read(k, filepath.Join(k.pod.LogDirectory, "ctr.log")) }

// pid returns the host's pid of the container's first process: the first in its cgroup or, for crun, in the cgroup
// "container" below.
func (k *kubelet) pid(id string) string {
	k.Helper()
	for _, dir := range []string{k.cgroup(id), k.cgroup(id) + "/container"} {
		if procs, err := os.ReadFile(dir + "/cgroup.procs"); err == nil && len(procs) > 0 {
			return strings.Fields(string(procs))[0]
		}
	}
	k.Fatal("no process in the container's cgroup, want one")
	return ""
}

// cgroup returns the directory of the container's cgroup, which must be the only one in the pod's slice with its id.
func (k *kubelet) cgroup(id string) string {
	k.Helper()
	dirs, err := filepath.Glob("/sys/fs/cgroup" + podPath + "/*" + id + "*.scope")
	if err != nil || len(dirs) != 1 {
		k.Fatalf("cgroups of the container in %s: %v, %v; want one scope", podPath, dirs, err)
	}
	return dirs[0]
}

// limit returns a file of the container's cgroup.
func (k *kubelet) limit(id, file string) string {
	k.Helper()
	return read(k, filepath.Join(k.cgroup(id), file))
}

// read returns a file without white space around it.
func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// cgroupOf returns the cgroup of a process.
func cgroupOf(t testing.TB, pid string) string {
	t.Helper()
	return strings.TrimPrefix(read(t, "/proc/"+pid+"/cgroup"), "0::")
}

// systemctl runs systemctl and returns what it prints.
func systemctl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("systemctl", args...).CombinedOutput()
	if err != nil {
		t.Errorf("systemctl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// show returns a property of a unit.
func show(t testing.TB, unit, property string) string {
	t.Helper()
	return systemctl(t, "show", "--value", "-p", property, unit)
}

// number parses a decimal number.
func number(t testing.TB, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(fmt.Errorf("not a number: %w", err))
	}
	return n
}
