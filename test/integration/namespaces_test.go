package integration

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestNamespaces(t *testing.T) {
	t.Parallel()
	k := start(t)
	for _, c := range []struct {
		name string
		test func(*kubelet)
	}{
		{"pid of the pod", pidPod},
		{"pid of the node", pidNode},
		{"pid of a target", pidTarget},
		{"ipc of the node", ipcNode},
		{"user", userNamespace},
		{"user, with a volume of the image at /run", userNamespaceVolume},
		{"user, on the host's network", userNamespaceHostNetwork},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(k.sub(t)) })
	}
}

func pid(mode cri.NamespaceMode) func(*cri.ContainerConfig) {
	return func(c *cri.ContainerConfig) { c.Linux.SecurityContext.NamespaceOptions.Pid = mode }
}

func podPid(mode cri.NamespaceMode) func(*cri.PodSandboxConfig) {
	return func(c *cri.PodSandboxConfig) { c.Linux.SecurityContext.NamespaceOptions.Pid = mode }
}

func pidPod(k *kubelet) {
	pod, cfg := k.pod(podPid(cri.NamespaceMode_POD))
	a, _ := k.runIn(pod, cfg, []string{"sleep", "1111"}, pid(cri.NamespaceMode_POD))
	b, _ := k.runIn(pod, cfg, []string{"sleep", "2222"}, pid(cri.NamespaceMode_POD))
	if ps := k.exec(b, "ps -o args"); !strings.Contains(ps, "sleep 1111") || !strings.Contains(ps, "sleep 2222") {
		k.Errorf("processes in the second container, want those of both:\n%s", ps)
	}
	if first := k.exec(a, "cat /proc/1/cmdline"); !strings.Contains(first, "pause") {
		k.Errorf("process 1 = %q, want podd's pause", first)
	}
	// stopping one affects neither the other nor the namespace
	k.stopContainer(a, 0)
	if ps := k.exec(b, "ps -o args"); strings.Contains(ps, "sleep 1111") {
		k.Errorf("processes after the first container's stop, want \"sleep 1111\" gone:\n%s", ps)
	}
}

func pidNode(k *kubelet) {
	pod, cfg := k.pod(podPid(cri.NamespaceMode_NODE))
	ctr, _ := k.runIn(pod, cfg, []string{"sleep", "1000"}, pid(cri.NamespaceMode_NODE))
	ours, err := os.Readlink("/proc/self/ns/pid")
	k.ok("our pid namespace", err)
	if got := strings.TrimSpace(k.exec(ctr, "readlink /proc/self/ns/pid")); got != ours {
		k.Errorf("pid namespace = %s, want the host's, %s", got, ours)
	}
}

func pidTarget(k *kubelet) {
	pod, cfg := k.pod()
	target, _ := k.runIn(pod, cfg, []string{"sleep", "3333"})
	aim := func(id string) func(*cri.ContainerConfig) {
		return func(c *cri.ContainerConfig) {
			c.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{Pid: cri.NamespaceMode_TARGET, TargetId: id}
		}
	}
	debugger, _ := k.runIn(pod, cfg, []string{"sleep", "1000"}, aim(target))
	if ps := k.exec(debugger, "ps -o args"); !strings.Contains(ps, "sleep 3333") {
		k.Errorf("processes in the debug container, want the target's \"sleep 3333\":\n%s", ps)
	}
	_, other := k.sleeper()
	_, err := k.tryCreate(pod, k.containerConfig([]string{"true"}, aim(other)), cfg)
	k.refused("a target in another pod", err, "", codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound)
	_, err = k.tryCreate(pod, k.containerConfig([]string{"true"}, aim("feedfeed")), cfg)
	k.refused("a target that does not exist", err, "feedfeed", codes.NotFound, codes.InvalidArgument,
		codes.FailedPrecondition)
}

func ipcNode(k *kubelet) {
	pod, cfg := k.pod(func(c *cri.PodSandboxConfig) {
		c.Linux.SecurityContext.NamespaceOptions.Ipc = cri.NamespaceMode_NODE
	})
	ctr, _ := k.runIn(pod, cfg, []string{"sleep", "1000"}, func(c *cri.ContainerConfig) {
		c.Linux.SecurityContext.NamespaceOptions.Ipc = cri.NamespaceMode_NODE
	})
	ours, err := os.Readlink("/proc/self/ns/ipc")
	k.ok("our ipc namespace", err)
	if got := strings.TrimSpace(k.exec(ctr, "readlink /proc/self/ns/ipc")); got != ours {
		k.Errorf("ipc namespace = %s, want the host's, %s", got, ours)
	}
}

func userNamespace(k *kubelet) {
	mapping := []*cri.IDMapping{{HostId: 100000, ContainerId: 0, Length: 65536}}
	userns := &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: mapping, Gids: mapping}
	pod, cfg := k.pod(func(c *cri.PodSandboxConfig) { c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = userns })
	volume := k.Path("userns-volume")
	k.ok("make a volume", os.MkdirAll(volume, 0o777))
	k.ok("open it", os.Chmod(volume, 0o777))
	ctr, _ := k.runIn(pod, cfg, []string{"sleep", "1000"}, func(c *cri.ContainerConfig) {
		c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = userns
		c.Mounts = []*cri.Mount{{HostPath: volume, ContainerPath: "/volume", UidMappings: mapping, GidMappings: mapping}}
	})
	if got := strings.Join(strings.Fields(k.exec(ctr, "cat /proc/self/uid_map")), " "); got != "0 100000 65536" {
		k.Errorf("uid_map = %q, want %q", got, "0 100000 65536")
	}
	owners := k.exec(ctr, "id -u; stat -c %u /bin/busybox; touch /volume/file /in-root; stat -c %u /volume/file /in-root")
	if want := "0\n0\n0\n0\n"; owners != want {
		k.Errorf("uid and owners in the container = %q, want %q", owners, want)
	}
	if got := strings.TrimSpace(k.exec(ctr, "cat /sys/class/net/eth0/operstate")); got != "up" {
		k.Errorf("operstate of eth0 = %q, want up", got)
	}
}

// userNamespaceVolume: a mount below /var/run, which is a link to a volume of the image, as for the token of a service
// account in a pod with hostUsers false.
func userNamespaceVolume(k *kubelet) {
	const image = "docker.io/podd/volume-run:latest"
	k.have(image)
	mapping := []*cri.IDMapping{{HostId: 100000, ContainerId: 0, Length: 65536}}
	userns := &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: mapping, Gids: mapping}
	pod, cfg := k.pod(func(c *cri.PodSandboxConfig) { c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = userns })
	token := k.Path("userns-token")
	k.ok("make a volume", os.MkdirAll(token, 0o755))
	k.ok("write a token", os.WriteFile(token+"/token", []byte("secret\n"), 0o644))
	ctr, _ := k.runIn(pod, cfg, []string{"sleep", "1000"}, func(c *cri.ContainerConfig) {
		c.Image = &cri.ImageSpec{Image: image}
		c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = userns
		c.Mounts = []*cri.Mount{{HostPath: token, ContainerPath: "/var/run/secrets", Readonly: true, UidMappings: mapping,
			GidMappings: mapping}}
	})
	const command = "cat /var/run/secrets/token; stat -c %u /run /run/secrets; touch /run/file && stat -c %u /run/file"
	if got, want := k.exec(ctr, command), "secret\n0\n0\n0\n"; got != want {
		k.Errorf("token, and owners in the volume = %q, want %q", got, want)
	}
}

// userNamespaceHostNetwork tests what RuntimeFeatures.user_namespaces_host_network reports.
func userNamespaceHostNetwork(k *kubelet) {
	mapping := []*cri.IDMapping{{HostId: 165536, ContainerId: 0, Length: 65536}}
	options := &cri.NamespaceOption{
		Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER,
		UsernsOptions: &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: mapping, Gids: mapping},
	}
	pod, cfg := k.pod(func(c *cri.PodSandboxConfig) { c.Linux.SecurityContext.NamespaceOptions = options })
	ctr, _ := k.runIn(pod, cfg, []string{"sleep", "1000"},
		func(c *cri.ContainerConfig) { c.Linux.SecurityContext.NamespaceOptions = options })
	if got := strings.Join(strings.Fields(k.exec(ctr, "cat /proc/self/uid_map")), " "); got != "0 165536 65536" {
		k.Errorf("uid_map = %q, want %q", got, "0 165536 65536")
	}
	ours, err := os.Readlink("/proc/self/ns/net")
	k.ok("our network namespace", err)
	if got := strings.TrimSpace(k.exec(ctr, "readlink /proc/self/ns/net")); got != ours {
		k.Errorf("network namespace = %s, want the host's, %s", got, ours)
	}
	if got := k.exec(ctr, "id -u; ls /sys/class/net | grep -c ^lo"); got != "0\n1\n" {
		k.Errorf("uid, and number of lo in /sys = %q, want %q", got, "0\n1\n")
	}
}
