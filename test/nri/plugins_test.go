package nri

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	nvidia "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk-installer/container/runtime/nri"
	"github.com/sirupsen/logrus"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestPlugins has each plugin do what its README says.
func TestPlugins(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("podd needs root")
	}
	n := start(t)
	for _, c := range []struct {
		name string
		test func(*node)
	}{
		{"NVIDIA toolkit", nvidiaToolkit}, {"device-injector", deviceInjector}, {"ulimit-adjuster", ulimitAdjuster},
		{"hook-injector", hookInjector}, {"network-device-injector", networkDeviceInjector}, {"balloons", balloons},
		{"topology-aware", topologyAware},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(n.sub(t)) })
	}
}

// device writes a CDI specification with one device, which sets a variable.
func (n *node) device(vendor, class string) {
	n.Helper()
	text := `{"cdiVersion": "0.6.0", "kind": "` + vendor + "/" + class + `", "devices": [{"name": "0", "containerEdits": {
		"env": ["INJECTED=` + class + `"],
		"deviceNodes": [{"path": "/dev/injected", "hostPath": "/dev/zero", "permissions": "r"}]}}]}`
	n.must(os.WriteFile(filepath.Join(n.cdi, vendor+"-"+class+".json"), []byte(text), 0o644))
}

// likeToolkit writes the CDI specification of nvidia.com/card=0 in the form of "nvidia-ctk cdi generate": devices apart
// from edits of all containers, among them hooks of its own program, which change the root filesystem before its
// process starts.
func (n *node) likeToolkit() {
	n.Helper()
	dir := n.TempDir()
	program := filepath.Join(dir, "nvidia-cdi-hook")
	build := exec.Command("go", "build", "-o", program, "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook")
	build.Dir = "test/nri"
	build.Env = append(os.Environ(), "CGO_ENABLED=1") // for go-nvml, which the hooks here do not call
	if out, err := build.CombinedOutput(); err != nil {
		n.Fatalf("%v: %s", err, out)
	}
	hook := func(args ...string) string {
		list, err := json.Marshal(append([]string{"nvidia-cdi-hook"}, args...))
		n.must(err)
		return `{hookName: createContainer, path: ` + program + `, args: ` + string(list) +
			`, env: ["NVIDIA_CTK_DEBUG=false"]}`
	}
	text := `
cdiVersion: 0.5.0
kind: nvidia.com/card
devices:
- name: "0"
  containerEdits:
    deviceNodes: [{path: /dev/nvidia0, hostPath: /dev/zero}, {path: /dev/dri/card0, hostPath: /dev/null}]
    hooks:
    - ` + hook("chmod", "--mode", "711", "--path", "/dev/dri") + `
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=void]
  deviceNodes: [{path: /dev/nvidiactl, hostPath: /dev/null}]
  mounts:
  - hostPath: /lib/x86_64-linux-gnu/libm.so.6
    containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.1
    options: [ro, nosuid, nodev, rbind, rprivate]
  hooks:
  - ` + hook("create-symlinks", "--link", "libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so") + `
  - ` + hook("update-ldcache", "--folder", "/usr/lib/x86_64-linux-gnu") + `
`
	n.must(os.WriteFile(filepath.Join(n.cdi, "like-toolkit.yaml"), []byte(text), 0o644))
}

// nvidiaToolkit: the toolkit's plugin injects the CDI devices of an annotation, management devices only into pods of
// the namespaces that it was given, and it connects again when podd has been killed.
func nvidiaToolkit(n *node) {
	n.device("nvidia.com", "gpu")
	n.device("management.nvidia.com", "gpu")
	n.likeToolkit()
	log := logrus.New()
	log.SetOutput(n.Output())
	plugin := nvidia.NewPlugin(n.Context(), log, []string{"gpu-operator"})
	n.must(plugin.Start(n.Context(), n.socket(), "10"))
	n.Cleanup(func() {
		plugin.Stop()
		n.awaitPlugins(0)
	})
	n.awaitPlugins(1)
	const key = "nvidia.cdi.k8s.io/container.main"
	const look = `echo "($INJECTED)"; head -c 3 /dev/injected 2>/dev/null | wc -c`
	n.want(n.run("gpu", map[string]string{key: "nvidia.com/gpu=0"}, nil), look, "(gpu)\n3")
	n.want(n.run("no-gpu", nil, nil), look, "()\n0")
	n.want(n.run("management", map[string]string{key: "management.nvidia.com/gpu=0"}, nil), look, "()\n0")
	if _, err := n.tryRun("absent", map[string]string{key: "nvidia.com/gpu=9"}, nil); err == nil ||
		!strings.Contains(err.Error(), "nvidia.com/gpu=9") {
		n.Errorf("a container with a device that does not exist: %v, want an error with its name", err)
	}
	const libraries = "/usr/lib/x86_64-linux-gnu"
	n.want(n.run("like-the-toolkit", map[string]string{key: "nvidia.com/card=0"}, nil), "echo $NVIDIA_VISIBLE_DEVICES; "+
		"head -c 3 /dev/nvidia0 | wc -c; readlink "+libraries+"/libcuda.so; "+
		"grep -c libm.so.6 /etc/ld.so.cache; stat -c %a /dev/dri", "void\n3\nlibcuda.so.1\n1\n711")
	n.must(n.Restart(n.Context(), n.Kill9))
	n.awaitPlugins(1)
	n.want(n.run("again", map[string]string{key: "nvidia.com/gpu=0"}, nil), look, "(gpu)\n3")
}

// deviceInjector: device nodes, mounts, CDI devices and sysctls of annotations are in the container.
func deviceInjector(n *node) {
	n.device("vendor.test", "device")
	n.launch("device-injector", "-idx", "10", "-socket-path", n.socket())
	dir := n.TempDir()
	n.must(os.WriteFile(filepath.Join(dir, "file"), []byte("mounted"), 0o644))
	p := n.run("injected", map[string]string{
		"devices.noderesource.dev/container.main": "[{path: /dev/one, type: c, major: 1, minor: 5}]",
		"mounts.noderesource.dev/container.main": "[{source: " + dir +
			", destination: /two, type: bind, options: [bind, ro]}]",
		"cdi-devices.noderesource.dev/container.main": "[vendor.test/device=0]",
		"sysctl.noderesource.dev/container.main":      `net.core.somaxconn: "256"`,
	}, nil)
	n.want(p, "head -c 3 /dev/one | wc -c; cat /two/file; echo; echo $INJECTED; cat /proc/sys/net/core/somaxconn",
		"3\nmounted\ndevice\n256")
}

// ulimitAdjuster: the limits of an annotation are those of the container's processes.
func ulimitAdjuster(n *node) {
	n.launch("ulimit-adjuster", "-idx", "10", "-socket", n.socket())
	p := n.run("ulimit", map[string]string{
		"ulimits.noderesource.dev/container.main": "- type: RLIMIT_NOFILE\n  soft: 1024\n  hard: 4096\n" +
			"- type: memlock\n  soft: 65536\n  hard: 131072\n",
	}, nil)
	n.want(p, `awk '/Max open files|Max locked/ { print $4, $5 }' /proc/1/limits`, "1024 4096\n65536 131072")
}

// hookInjector: the hook of a file in a directory of OCI hooks runs for the pods that it is for.
func hookInjector(n *node) {
	ran := filepath.Join(n.TempDir(), "ran")
	const dir = "/etc/containers/oci/hooks.d" // the plugin has no option for it
	file := filepath.Join(dir, filepath.Base(n.Dir)+".json")
	n.must(os.MkdirAll(dir, 0o755))
	n.must(os.WriteFile(file, []byte(`{"version": "1.0.0", "stages": ["createRuntime"],
		"hook": {"path": "/bin/sh", "args": ["sh", "-c", "cat >`+ran+`"]},
		"when": {"annotations": {"^hooked$": "^`+filepath.Base(n.Dir)+`$"}}}`), 0o644))
	n.Cleanup(func() { n.must(os.Remove(file)) })
	n.launch("hook-injector", "-idx", "10", "-socket-path", n.socket())
	n.run("not-hooked", nil, nil)
	if _, err := os.Stat(ran); err == nil {
		n.Error("the hook ran for a container that it is not for")
	}
	p := n.run("hooked", map[string]string{"hooked": filepath.Base(n.Dir)}, nil)
	if state, err := os.ReadFile(ran); err != nil || !strings.Contains(string(state), p.running) {
		n.Errorf("the hook read %s, %v, want the state of container %s", state, err, p.running)
	}
}

// networkDeviceInjector: an interface of the node moves into the pod, with the name of the annotation. The plugin's
// code differs from its README: it has the other key misspelled, and reads no further field.
func networkDeviceInjector(n *node) {
	n.launch("network-device-injector", "-idx", "10", "-socket", n.socket())
	name := "nri-" + n.Dir[len(n.Dir)-6:]
	add := exec.Command("ip", "link", "add", name, "type", "veth", "peer", "name", name+"p")
	if out, err := add.CombinedOutput(); err != nil {
		n.Fatalf("make an interface: %v: %s", err, out)
	}
	n.Cleanup(func() { _ = exec.Command("ip", "link", "delete", name).Run() }) // it is gone with the pod's namespace
	p := n.run("network", map[string]string{
		"netdevices.nri.containerd.io": "- name: " + name + "\n  new_name: eth33\n",
	}, nil)
	n.want(p, "ls -d /sys/class/net/eth33", "/sys/class/net/eth33")
	if exec.Command("ip", "link", "show", name).Run() == nil {
		n.Errorf("%s is still on the node, want it in the pod", name)
	}
}

// policy runs a plugin of nri-plugins with a configuration file.
func (n *node) policy(name, config string) {
	n.Helper()
	dir := n.TempDir()
	file := filepath.Join(dir, "config.yaml")
	n.must(os.WriteFile(file, []byte(config), 0o644))
	n.launch(name, "-config-file", file, "-nri-socket", n.socket(), "-nri-plugin-index", "90",
		"-state-dir", filepath.Join(dir, "state"), "-pid-file", filepath.Join(dir, "pid"))
}

// guaranteed are the resources of a container of a Guaranteed pod, in CPUs.
func guaranteed(cpus int64) *cri.LinuxContainerResources {
	return &cri.LinuxContainerResources{
		CpuPeriod: 100_000, CpuQuota: 100_000 * cpus, CpuShares: 1024 * cpus, MemoryLimitInBytes: 64 << 20,
		OomScoreAdj: -997,
	}
}

const allowed = "grep Cpus_allowed_list /proc/1/status | cut -f 2"

// balloons: the containers of two balloons of one CPU run on different CPUs.
func balloons(n *node) {
	n.policy("balloons", `
apiVersion: config.nri/v1alpha1
kind: BalloonsPolicy
metadata:
  name: default
spec:
  reservedResources:
    cpu: cpuset:0
  pinCPU: true
  balloonTypes:
  - name: own
    minCPUs: 1
    maxCPUs: 1
    allocatorPriority: high
`)
	own := n.run("own", map[string]string{"balloon.balloons.resource-policy.nri.io": "own"}, guaranteed(1))
	reserved := n.run("reserved", map[string]string{"balloon.balloons.resource-policy.nri.io": "reserved"}, nil)
	n.want(own, allowed, "1")
	n.want(reserved, allowed, "0")
	n.wantInStatus(own, "1")
}

// topologyAware: a Guaranteed container of one CPU gets one for itself, those of kube-system the reserved one. A
// container for which no CPU is left is refused, and gets one when another has gone.
func topologyAware(n *node) {
	n.policy("topology-aware", `
apiVersion: config.nri/v1alpha1
kind: TopologyAwarePolicy
metadata:
  name: default
spec:
  pinCPU: true
  pinMemory: true
  reservedResources:
    cpu: cpuset:0
`)
	own := n.run("own", nil, guaranteed(1))
	reserved := n.run("kube-system/reserved", nil, &cri.LinuxContainerResources{CpuShares: 100})
	n.want(own, allowed, "1")
	n.want(reserved, allowed, "0")
	n.wantInStatus(own, "1")
	_, err := n.tryRun("third", nil, guaranteed(1))
	if err == nil || !strings.Contains(err.Error(), "failed to allocate") {
		n.Errorf("a container for which no CPU is left: %v, want the plugin's refusal", err)
	}
	n.remove(own)
	n.want(n.run("fourth", nil, guaranteed(1)), allowed, "1")
}

// wantInStatus: the CPUs of the container are in its status, too.
func (n *node) wantInStatus(p pod, cpus string) {
	n.Helper()
	reply, err := n.Runtime.ContainerStatus(n.Context(), &cri.ContainerStatusRequest{ContainerId: p.running})
	n.must(err)
	if got := reply.GetStatus().GetResources().GetLinux().GetCpusetCpus(); got != cpus {
		n.Errorf("CPUs in the status of the container = %q, want %q", got, cpus)
	}
}
