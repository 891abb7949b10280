package containerd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/images"
	"github.com/podd-project/podd/test/leak"
)

const busybox = "registry.k8s.io/e2e-test-images/busybox:1.29-2"

// TestVM: containerd runs pods with containerd-shim-podvm-v1 as it comes from its module, through crictl: run, create,
// start, exec, logs, statistics, resources, stop, remove. Nothing is left, also when the shim is killed.
func TestVM(t *testing.T) {
	d := start(t)
	d.crictl("pull", busybox)
	d.crictl("rmp", "-f", d.crictl("runp", "--runtime", "vm", d.podConfig("first"))) // makes what remains: the bridge
	before, err := leak.Take(d.mine())
	if err != nil {
		t.Fatal(err)
	}
	pod := d.crictl("runp", "--runtime", "vm", d.podConfig("ordinary"))
	ctr := d.runContainer(pod, "ordinary", cri.NamespaceMode_CONTAINER)
	d.run("own kernel", func(d *server) {
		host, err := os.ReadFile("/proc/sys/kernel/osrelease")
		if err != nil {
			d.Fatal(err)
		}
		if got := d.crictl("exec", "-s", ctr, "uname", "-r"); got == strings.TrimSpace(string(host)) {
			d.Errorf("kernel of the container = %s, that of the machine", got)
		}
	})
	d.run("command", func(d *server) { d.wants("main", "exec", "-s", ctr, "cat", "/proc/1/environ") })
	d.run("logs", func(d *server) {
		d.eventually("the log", func() bool { return d.crictl("logs", ctr) == "hello" })
	})
	d.run("stats", func(d *server) { d.wants("workingSetBytes", "stats", "-o", "json", ctr) })
	d.run("update", func(d *server) {
		d.crictl("update", "--memory", fmt.Sprint(64<<20), ctr)
		d.wants(fmt.Sprint(64<<20), "exec", "-s", ctr, "sh", "-c",
			"cat /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/memory.max")
	})
	d.run("shared processes", func(d *server) {
		other := d.runContainer(pod, "shared", cri.NamespaceMode_POD)
		d.wants("pause", "exec", "-s", other, "cat", "/proc/1/cmdline")
	})
	d.run("stop and remove", func(d *server) {
		d.crictl("stop", "-t", "0", ctr)
		d.wants(`"exitCode": 137`, "inspect", ctr)
		d.crictl("rm", ctr)
		d.crictl("stopp", pod)
		d.crictl("rmp", pod)
		d.nothing(before)
	})
	d.run("killed shim", func(d *server) {
		pod := d.crictl("runp", "--runtime", "vm", d.podConfig("killed"))
		d.runContainer(pod, "ordinary", cri.NamespaceMode_CONTAINER)
		d.killShim(pod)
		d.eventually("the pod is not ready",
			func() bool { return strings.Contains(d.crictl("inspectp", pod), "SANDBOX_NOTREADY") })
		// It refuses until it has seen that the containers have ended.
		d.eventually("the pod is removed", func() bool { return d.tryCrictl("rmp", "-f", pod) == nil })
		d.nothing(before)
	})
}

// server is a containerd with private directories, which pulls all images from the registry.
type server struct {
	*testing.T
	dir, repo, bridge string
	registry          *images.Registry
}

// run runs f as a subtest.
func (d *server) run(name string, f func(*server)) {
	d.T.Run(name, func(t *testing.T) {
		s := *d
		s.T = t
		f(&s)
	})
}

// config is containerd's configuration, with restrict_oom_score_adj for machines without CAP_SYS_RESOURCE. The
// parameters are its directory and that of the CNI plugins.
const config = `version = 3
root = "%[1]s/root"
state = "%[1]s/run"
[grpc]
address = "%[1]s/s"
[plugins."io.containerd.internal.v1.opt"]
path = "%[1]s/opt"
[plugins."io.containerd.nri.v1.nri"]
disable = true
[plugins."io.containerd.cri.v1.images".registry]
config_path = "%[1]s/certs.d"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "registry.k8s.io/pause:3.10"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["%[2]s"]
conf_dir = "%[1]s/net.d"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.vm]
runtime_type = "io.containerd.podvm.v1"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.vm.options]
ConfigPath = "%[1]s/podvm.toml"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.unikernel]
runtime_type = "io.containerd.podvm.v1"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.unikernel.options]
ConfigPath = "%[1]s/unikernel.toml"
`

// network is a bridge; the parameters are its name, a number for its addresses, and containerd's directory.
const network = `{"cniVersion": "1.0.0", "name": %[1]q, "plugins": [{"type": "bridge", "bridge": %[1]q,
"isDefaultGateway": true, "ipam": {"type": "host-local", "dataDir": "%[3]s/ips",
"ranges": [[{"subnet": "10.131.%[2]d.0/24"}]]}}]}`

// start starts the containerd in the directory $CONTAINERD.
func start(t *testing.T) *server {
	t.Helper()
	if os.Getenv("CONTAINERD") == "" || os.Geteuid() != 0 {
		t.Fatal("run this test by make test-containerd, as root")
	}
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "ctd-") // short, because the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	d := &server{t, dir, repo, filepath.Base(dir), nil}
	leak.Check(t, d.mine())
	d.registry = images.Serve(t)
	d.configure()
	d.serve(filepath.Join(os.Getenv("CONTAINERD"), "containerd"))
	return d
}

func (d *server) configure() {
	d.Helper()
	number := os.Getpid() % 256
	options := fmt.Sprintf("driver = \"uml\"\nimages = %q\n", filepath.Join(d.repo, "bin", "vm"))
	for name, text := range map[string]string{
		"config.toml":                 fmt.Sprintf(config, d.dir, filepath.Join(d.repo, "bin", "cni")),
		"podvm.toml":                  options,
		"unikernel.toml":              options + "kernel = \"image\"\n",
		"net.d/10-test.conflist":      fmt.Sprintf(network, d.bridge, number, d.dir),
		"certs.d/_default/hosts.toml": fmt.Sprintf("server = \"http://%[1]s\"\n[host.\"http://%[1]s\"]\n", d.registry.Addr),
	} {
		d.write(name, text)
	}
}

// write writes a file below the directory and returns its path.
func (d *server) write(name, text string) string {
	d.Helper()
	path := filepath.Join(d.dir, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		d.Fatal(err)
	}
	return path
}

// serve starts containerd until the test ends.
func (d *server) serve(program string) {
	d.Helper()
	var log bytes.Buffer
	cmd := exec.Command(program, "--config", filepath.Join(d.dir, "config.toml"))
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(d.repo, "bin")+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.WaitDelay = time.Second // a shim has its standard error
	if err := cmd.Start(); err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() {
		if d.Failed() {
			d.removePods()
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if d.Failed() {
			d.Logf("containerd's log:\n%s", log.Bytes()[max(0, log.Len()-20000):])
		}
		d.removeRest()
	})
	d.eventually("containerd serves", func() bool { return d.tryCrictl("version") == nil })
}

// removePods removes what a failed test has left.
func (d *server) removePods() { _ = d.tryCrictl("rmp", "-f", "-a") }

// removeRest removes what remains when containerd has removed the pods: the bridge, the parent of the pods' cgroups,
// and what containerd mounts for itself.
func (d *server) removeRest() {
	for _, pattern := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/"} {
		parents, _ := filepath.Glob(pattern + filepath.Base(d.dir))
		for _, parent := range parents {
			_ = os.Remove(parent)
		}
	}
	if link, err := netlink.LinkByName(d.bridge); err == nil {
		_ = netlink.LinkDel(link)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		d.Error(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); strings.HasPrefix(f[1], d.dir) {
			_ = unix.Unmount(f[1], unix.MNT_DETACH)
		}
	}
}

func (d *server) command(args ...string) *exec.Cmd {
	socket := "unix://" + filepath.Join(d.dir, "s")
	return exec.Command(filepath.Join(d.repo, "bin", "crictl"),
		append([]string{"-r", socket, "-i", socket, "--timeout", "60s"}, args...)...)
}

func (d *server) tryCrictl(args ...string) error { return d.command(args...).Run() }

// crictl returns what crictl prints, without the space around it.
func (d *server) crictl(args ...string) string {
	d.Helper()
	out, err := d.command(args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		d.Fatalf("crictl %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

// wants fails the test unless crictl prints the text.
func (d *server) wants(text string, args ...string) {
	d.Helper()
	if got := d.crictl(args...); !strings.Contains(got, text) {
		d.Errorf("crictl %s = %s, want %q in it", strings.Join(args, " "), got, text)
	}
}

func (d *server) eventually(what string, done func() bool) {
	d.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			d.Fatalf("not within a minute: %s", what)
		}
	}
}

// config writes a request of crictl and returns its path.
func (d *server) config(name string, request any) string {
	d.Helper()
	data, err := json.Marshal(request)
	if err != nil {
		d.Fatal(err)
	}
	return d.write(name+".json", string(data))
}

func (d *server) podConfig(name string) string {
	return d.config("pod-"+name, &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name},
		LogDirectory: filepath.Join(d.dir, "logs", name), Hostname: name,
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: "/" + filepath.Base(d.dir)},
	})
}

// runContainer runs a container that greets and sleeps, and returns its id.
func (d *server) runContainer(pod, name string, processes cri.NamespaceMode) string {
	d.Helper()
	id := d.createContainer(pod, &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: name}, Image: &cri.ImageSpec{Image: busybox}, LogPath: name + ".log",
		Command: []string{"sh", "-c", "echo hello; exec sleep 10000"},
		Envs:    []*cri.KeyValue{{Key: "ROLE", Value: []byte("main")}},
		Linux: &cri.LinuxContainerConfig{
			Resources: &cri.LinuxContainerResources{MemoryLimitInBytes: 128 << 20},
			SecurityContext: &cri.LinuxContainerSecurityContext{
				NamespaceOptions: &cri.NamespaceOption{Pid: processes},
			},
		},
	})
	d.crictl("start", id)
	return id
}

// createContainer creates a container in a pod, and returns its id.
func (d *server) createContainer(pod string, cfg *cri.ContainerConfig) string {
	d.Helper()
	file := d.config("container-"+cfg.Metadata.Name, cfg)
	return d.crictl("create", pod, file, filepath.Join(d.dir, "pod-"+d.podStatus(pod).Metadata.Name+".json"))
}

// podStatus is what the tests use of a pod's status.
type podStatus struct {
	Metadata struct{ Name string }
	Network  struct{ IP string }
}

func (d *server) podStatus(pod string) podStatus {
	d.Helper()
	var info struct{ Status podStatus }
	if err := json.Unmarshal([]byte(d.crictl("inspectp", pod)), &info); err != nil {
		d.Fatal(err)
	}
	return info.Status
}

// killShim kills the shim of a pod: the parent of the process that stands for the pod.
func (d *server) killShim(pod string) {
	d.Helper()
	var status struct{ Info struct{ Pid int } }
	if err := json.Unmarshal([]byte(d.crictl("inspectp", pod)), &status); err != nil {
		d.Fatal(err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", status.Info.Pid))
	if err != nil {
		d.Fatal(err)
	}
	var pid, parent int
	var comm, state string
	if _, err := fmt.Sscan(string(stat), &pid, &comm, &state, &parent); err != nil {
		d.Fatal(err)
	}
	if err := syscall.Kill(parent, syscall.SIGKILL); err != nil {
		d.Fatal(err)
	}
}

// mine selects what containerd and its pods make.
func (d *server) mine() leak.Options {
	return leak.Options{Match: []string{d.dir, d.bridge}, Wait: 10 * time.Second}
}

// nothing fails the test if more is on the machine than before the pods.
func (d *server) nothing(before leak.Snapshot) {
	d.Helper()
	left, err := before.Wait(d.Context(), d.mine())
	if err != nil {
		d.Fatal(err)
	}
	for _, l := range left {
		d.Errorf("left of a pod: %s", l)
	}
}
