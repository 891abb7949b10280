package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestWorkloads runs what charts and kubectl send to every node.
func TestWorkloads(t *testing.T) {
	t.Parallel()
	k := start(t)
	for _, c := range []struct {
		name string
		test func(*kubelet)
	}{
		{"missing host path", missingHostPath},
		{"privileged container of an unprivileged pod", privilegedDebugger},
		{"real-time stop signal", realTimeSignal},
		{"service links of 600 services", serviceLinks},
		{"default sysctls", defaultSysctls},
		{"default sysctls in a user namespace", defaultSysctlsUserNamespace},
		{"output in a user namespace", userNamespaceOutput},
		{"host name on the node's network", hostNetworkName},
		{"relative volume of an image", relativeVolume},
		{"runtime spec after an update", specAfterUpdate},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(k.sub(t)) })
	}
}

func hostMount(path string) func(*cri.ContainerConfig) {
	return func(c *cri.ContainerConfig) {
		c.Mounts = append(c.Mounts, &cri.Mount{HostPath: path, ContainerPath: "/volume"})
	}
}

func missingHostPath(k *kubelet) {
	path := k.Path("run/flannel")
	out, exit := k.output("touch /volume/subnet.env && stat -c '%u %a' /volume", hostMount(path))
	if exit != 0 || out != "0 755\n" {
		k.Errorf("exit code = %d, output = %q, want 0, owner 0 and mode 755", exit, out)
	}
	if _, err := os.Stat(path + "/subnet.env"); err != nil {
		k.Errorf("the container's file is not on the host: %v", err)
	}
	link := k.Path("dangling")
	k.ok("make a link", os.Symlink(k.Path("nowhere"), link))
	pod, podCfg := k.pod()
	_, err := k.tryCreate(pod, k.containerConfig([]string{"true"}, hostMount(link+"/x")), podCfg)
	k.refused("a path below a dangling link", err, "dangling/x", codes.NotFound)
	if _, err := os.Lstat(k.Path("nowhere")); err == nil {
		k.Errorf("%s was created through a link", k.Path("nowhere"))
	}
}

func TestMissingHostPathIsRefused(t *testing.T) {
	t.Parallel()
	k := start(t, `runtime.create_missing_host_paths=false`)
	pod, podCfg := k.pod()
	path := k.Path("none")
	_, err := k.tryCreate(pod, k.containerConfig([]string{"true"}, hostMount(path)), podCfg)
	k.refused("a host path that does not exist", err, path, codes.NotFound)
	if _, err := os.Lstat(path); err == nil {
		k.Errorf("%s was created", path)
	}
}

// privilegedDebugger is kubectl debug --profile=sysadmin: by then the kubelet's sandbox_config says privileged.
func privilegedDebugger(k *kubelet) {
	privileged := func(c *cri.ContainerConfig) { c.Linux.SecurityContext.Privileged = true }
	const look = "mount -t tmpfs x /tmp && sed -n 's/^Seccomp:\t//p' /proc/self/status; " +
		"ls /dev/kmsg; grep -c ' /sys rw' /proc/self/mountinfo"
	pod, podCfg := k.pod()
	app, _ := k.runIn(pod, podCfg, []string{"sleep", "10000"})
	_, err := k.tryCreate(pod, k.containerConfig([]string{"true"}, privileged), podCfg)
	k.refused("privileged, but sandbox_config is not", err, "sandbox_config.linux.security_context.privileged",
		codes.InvalidArgument)
	podCfg.Linux.SecurityContext.Privileged = true
	out, exit := k.outputIn(pod, podCfg, look, privileged, func(c *cri.ContainerConfig) {
		c.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{Pid: cri.NamespaceMode_TARGET, TargetId: app}
	})
	if want := "0\n/dev/kmsg\n1\n"; exit != 0 || out != want {
		k.Errorf("exit code = %d, output = %q, want 0, %q", exit, out, want)
	}
	if got := k.exec(app, "sed -n 's/^CapEff:\t//p' /proc/self/status"); got != "00000000a80425fb\n" {
		k.Errorf("capabilities of the other container = %q, want the default", got)
	}
}

func realTimeSignal(k *kubelet) {
	pod, podCfg := k.pod()
	id, cfg := k.runIn(pod, podCfg, []string{"sh", "-c", "trap 'exit 7' 37; echo ready; while :; do sleep 0.05; done"},
		func(c *cri.ContainerConfig) { c.StopSignal = cri.Signal_SIGNAL_SIGRTMINPLUS3 })
	k.waitLog(podCfg, cfg, "ready")
	if got := k.container(id).StopSignal; got != cri.Signal_SIGNAL_SIGRTMINPLUS3 {
		k.Errorf("stop signal in the status = %v, want SIGNAL_SIGRTMINPLUS3", got)
	}
	k.stopContainer(id, 30)
	if st := k.container(id); st.ExitCode != 7 {
		k.Errorf("exit code = %d, want the 7 of the handler of SIGRTMIN+3", st.ExitCode)
	}
}

// serviceLinks has the variables that the kubelet sets for a namespace with 600 services of a named port.
func serviceLinks(k *kubelet) {
	const services = 625
	const command = "env | grep -c ^A_SERVICE_NAME_; echo $A_SERVICE_NAME_600_PORT_80_TCP_ADDR"
	out, exit := k.output(command, func(c *cri.ContainerConfig) {
		for i := range services {
			host, name := fmt.Sprintf("10.96.%d.%d", i/256, i%256), fmt.Sprintf("A_SERVICE_NAME_%d", i)
			for key, value := range map[string]string{
				"SERVICE_HOST": host, "SERVICE_PORT": "80", "SERVICE_PORT_HTTP": "80", "PORT": "tcp://" + host + ":80",
				"PORT_80_TCP": "tcp://" + host + ":80", "PORT_80_TCP_PROTO": "tcp", "PORT_80_TCP_PORT": "80",
				"PORT_80_TCP_ADDR": host,
			} {
				c.Envs = append(c.Envs, &cri.KeyValue{Key: name + "_" + key, Value: []byte(value)})
			}
		}
	})
	if want := fmt.Sprintf("%d\n10.96.2.88\n", 8*services); exit != 0 || out != want {
		k.Errorf("exit code = %d, output = %q, want 0, %q", exit, out, want)
	}
}

const readSysctls = "cd /proc/sys/net/ipv4; cat ip_unprivileged_port_start ping_group_range"

func defaultSysctls(k *kubelet) {
	user := func(c *cri.ContainerConfig) { c.Linux.SecurityContext.RunAsUser = &cri.Int64Value{Value: 1000} }
	out, exit := k.output(readSysctls+"; nc -l -p 80 & sleep 0.5; netstat -ltn | grep -c ':80 '", user)
	if want := "0\n0\t2147483647\n1\n"; exit != 0 || out != want {
		k.Errorf("exit code = %d, output = %q, want 0, %q", exit, out, want)
	}
	pod, podCfg := k.pod(func(c *cri.PodSandboxConfig) {
		c.Linux.Sysctls = map[string]string{"net/ipv4/ip_unprivileged_port_start": "80"}
	})
	if out, _ := k.outputIn(pod, podCfg, readSysctls); out != "80\n0\t2147483647\n" {
		k.Errorf("sysctls = %q, want the pod's own, 80, and the default group range", out)
	}
	before, err := os.ReadFile("/proc/sys/net/ipv4/ping_group_range")
	k.ok("read the node's sysctl", err)
	k.pod(func(c *cri.PodSandboxConfig) {
		c.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_NODE
	})
	if after, _ := os.ReadFile("/proc/sys/net/ipv4/ping_group_range"); string(after) != string(before) {
		k.Errorf("the node's ping_group_range = %q, want %q as before", after, before)
	}
}

func defaultSysctlsUserNamespace(k *kubelet) {
	mapping := []*cri.IDMapping{{HostId: 100000, ContainerId: 0, Length: 65536}}
	options := &cri.NamespaceOption{
		Pid:           cri.NamespaceMode_CONTAINER,
		UsernsOptions: &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: mapping, Gids: mapping},
	}
	for _, own := range []map[string]string{nil, {"net.ipv4.ping_group_range": "0 2147483647"}} {
		pod, podCfg := k.pod(func(c *cri.PodSandboxConfig) {
			c.Linux.SecurityContext.NamespaceOptions, c.Linux.Sysctls = options, own
		})
		out, _ := k.outputIn(pod, podCfg, readSysctls, func(c *cri.ContainerConfig) {
			c.Linux.SecurityContext.NamespaceOptions = options
		})
		if out != "0\n0\t65535\n" {
			k.Errorf("sysctls of a pod with %v = %q, want 0 and the mapped groups", own, out)
		}
	}
}

// userNamespaceOutput: /dev/stdout and /dev/stderr can be opened, as nginx does for its logs, at start and by exec.
func userNamespaceOutput(k *kubelet) {
	mapping := []*cri.IDMapping{{HostId: 100000, ContainerId: 0, Length: 65536}}
	options := &cri.NamespaceOption{
		Pid:           cri.NamespaceMode_CONTAINER,
		UsernsOptions: &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: mapping, Gids: mapping},
	}
	pod, podCfg := k.pod(func(c *cri.PodSandboxConfig) { c.Linux.SecurityContext.NamespaceOptions = options })
	const command = "echo out >/dev/stdout; echo err >/dev/stderr"
	for _, uid := range []int64{0, 1000} {
		user := func(c *cri.ContainerConfig) {
			c.Linux.SecurityContext.NamespaceOptions = options
			c.Linux.SecurityContext.RunAsUser = &cri.Int64Value{Value: uid}
		}
		id, cfg := k.runIn(pod, podCfg, []string{"sh", "-c", command + "; sleep 10000"}, user)
		k.waitLog(podCfg, cfg, "err")
		if got := k.logText(podCfg, cfg); got != "out\nerr\n" {
			k.Errorf("user %d: log = %q, want out and err", uid, got)
		}
		r, err := k.Runtime.ExecSync(k.ctx(), &cri.ExecSyncRequest{
			ContainerId: id, Cmd: []string{"sh", "-c", command}, Timeout: 30,
		})
		k.ok("ExecSync", err)
		if string(r.Stdout) != "out\n" || string(r.Stderr) != "err\n" || r.ExitCode != 0 {
			k.Errorf("user %d: ExecSync = %q, %q, %d, want out, err, 0", uid, r.Stdout, r.Stderr, r.ExitCode)
		}
	}
}

func hostNetworkName(k *kubelet) {
	pod, podCfg := k.pod(func(c *cri.PodSandboxConfig) {
		c.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_NODE
	})
	node, err := os.Hostname()
	k.ok("the node's name", err)
	out, _ := k.outputIn(pod, podCfg, "echo $HOSTNAME; hostname; cat /etc/hostname", func(c *cri.ContainerConfig) {
		c.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_NODE
	})
	if want := strings.Repeat(node+"\n", 3); out != want {
		k.Errorf("HOSTNAME, hostname and /etc/hostname = %q, want %q", out, want)
	}
}

func relativeVolume(k *kubelet) {
	const image = "docker.io/podd/volumes:latest"
	k.have(image)
	out, exit := k.output("touch /C:/relative/file && ls /C:/relative", func(c *cri.ContainerConfig) {
		c.Image = &cri.ImageSpec{Image: image}
	})
	if exit != 0 || out != "file\n" {
		k.Errorf("exit code = %d, output = %q, want 0 and the file in the volume", exit, out)
	}
}

func specAfterUpdate(k *kubelet) {
	_, id := k.sleeper(func(c *cri.ContainerConfig) { c.Linux.Resources.MemoryLimitInBytes = 64 << 20 })
	_, err := k.Runtime.UpdateContainerResources(k.ctx(), &cri.UpdateContainerResourcesRequest{ContainerId: id,
		Linux: &cri.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: 25000, MemoryLimitInBytes: 128 << 20}})
	k.ok("UpdateContainerResources", err)
	r, err := k.Runtime.ContainerStatus(k.ctx(), &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	k.ok("ContainerStatus", err)
	var info struct{ RuntimeSpec specs.Spec }
	k.ok("read the verbose status", json.Unmarshal([]byte(r.Info["info"]), &info))
	resources := info.RuntimeSpec.Linux.Resources
	want := specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(128 << 20))},
		CPU: &specs.LinuxCPU{Period: new(uint64(100000)), Quota: new(int64(25000))}}
	got := specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: resources.Memory.Limit}}
	if cpu := resources.CPU; cpu != nil {
		got.CPU = &specs.LinuxCPU{Period: cpu.Period, Quota: cpu.Quota}
	}
	if d := cmp.Diff(want, got); d != "" {
		k.Errorf("resources in runtimeSpec after the update, -want +got:\n%s", d)
	}
}

func TestPrivilegedWithoutHostDevices(t *testing.T) {
	t.Parallel()
	k := start(t, `runtime.handlers.runc.privileged_without_host_devices="true"`)
	pod, podCfg := k.pod(func(c *cri.PodSandboxConfig) { c.Linux.SecurityContext.Privileged = true })
	const command = "ls /dev/kmsg 2>/dev/null; " +
		"mknod /kmsg c 1 11 && head -c 1 /kmsg 2>&1 | grep -o 'not permitted'; mount -t tmpfs x /tmp && echo mounted"
	out, exit := k.outputIn(pod, podCfg, command, func(c *cri.ContainerConfig) {
		c.Linux.SecurityContext.Privileged = true
	})
	if want := "not permitted\nmounted\n"; exit != 0 || out != want {
		k.Errorf("exit code = %d, output = %q, want 0, %q", exit, out, want)
	}
}
