package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestInspect: what tools read of a pod that podd runs: the verbose status, config.json and conmon's command line.
func TestInspect(t *testing.T) {
	t.Parallel()
	k := start(t)
	for name, mode := range map[string]cri.NamespaceMode{
		"no infra container": cri.NamespaceMode_CONTAINER, "infra container": cri.NamespaceMode_POD,
	} {
		t.Run(name, func(t *testing.T) { inspectPod(k.sub(t), mode) })
	}
	t.Run("network", func(t *testing.T) { inspectNetwork(k.sub(t)) })
}

// inspectPod: a tool can enter the pod by its pid or by the namespaces in its runtimeSpec.
func inspectPod(k *kubelet, mode cri.NamespaceMode) {
	pod, cfg := k.pod(podPid(mode))
	ctr, _ := k.runIn(pod, cfg, []string{"sleep", "1000"}, pid(mode))
	var info struct {
		Pid         int
		RuntimeSpec specs.Spec
	}
	r, err := k.Runtime.PodSandboxStatus(k.ctx(), &cri.PodSandboxStatusRequest{PodSandboxId: pod, Verbose: true})
	k.ok("PodSandboxStatus", err)
	k.ok("decode the verbose status", json.Unmarshal([]byte(r.Info["info"]), &info))
	inContainer := strings.TrimSpace(k.exec(ctr, "readlink /proc/self/ns/net"))
	if ns, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(info.Pid), "ns/net")); err != nil || ns != inContainer {
		k.Errorf("network namespace of pid %d = %s, %v, want %s", info.Pid, ns, err, inContainer)
	}
	at := slices.IndexFunc(info.RuntimeSpec.Linux.Namespaces, func(n specs.LinuxNamespace) bool {
		return n.Type == specs.NetworkNamespace
	})
	if at < 0 || info.RuntimeSpec.Linux.Namespaces[at].Path != k.Path("run", "netns", pod) {
		k.Errorf("namespaces of the pod's runtimeSpec = %+v, want the network's", info.RuntimeSpec.Linux.Namespaces)
	}
	checkAnnotations(k, pod, ctr, cfg)
	monitor := stateOf(k, k, ctr).Monitor.Pid
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(monitor), "cmdline"))
	if err != nil || !strings.Contains(string(line), "\x00--name\x00") {
		k.Errorf("command line of conmon = %q, %v, want --name", line, err)
	}
}

// checkAnnotations checks that config.json names the container as containerd's does.
func checkAnnotations(k *kubelet, pod, ctr string, cfg *cri.PodSandboxConfig) {
	k.Helper()
	var spec specs.Spec
	data, err := os.ReadFile(k.Path("run", "containers", ctr, "config.json"))
	k.ok("read config.json", err)
	k.ok("decode config.json", json.Unmarshal(data, &spec))
	for name, want := range map[string]string{
		"container-type": "container", "sandbox-id": pod, "sandbox-name": cfg.Metadata.Name,
		"sandbox-namespace": cfg.Metadata.Namespace, "sandbox-uid": cfg.Metadata.Uid,
		"container-name": k.container(ctr).Metadata.Name, "image-name": busybox,
	} {
		if got := spec.Annotations["io.kubernetes.cri."+name]; got != want {
			k.Errorf("annotation io.kubernetes.cri.%s = %q, want %q", name, got, want)
		}
	}
}

// inspectNetwork: the verbose Status has the CNI configuration in force, as containerd's, and says whether pulls are
// confined to files.
func inspectNetwork(k *kubelet) {
	r, err := k.Runtime.Status(k.ctx(), &cri.StatusRequest{Verbose: true})
	k.ok("Status", err)
	var conf struct {
		PluginConfDir string
		Networks      []struct {
			IFName string
			Config struct {
				Name    string
				Plugins []struct{ Network struct{ Type string } }
			}
		}
	}
	k.ok("decode cniconfig", json.Unmarshal([]byte(r.Info["cniconfig"]), &conf))
	if conf.PluginConfDir != k.Path("net.d") || len(conf.Networks) != 1 || conf.Networks[0].IFName != "eth0" ||
		conf.Networks[0].Config.Name != k.Bridge || conf.Networks[0].Config.Plugins[0].Network.Type != "bridge" {
		k.Errorf("cniconfig = %s, want network %s", r.Info["cniconfig"], k.Bridge)
	}
	if got := r.Info["landlock"]; got != "true" && got != "false" {
		k.Errorf("landlock = %q, want whether the kernel has it", got)
	}
}
