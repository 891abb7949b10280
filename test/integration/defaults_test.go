package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/podd-project/podd/test/sample"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// nodeDefaults are the keys for what no field of the CRI sets.
func nodeDefaults(t *testing.T, dir string) []string {
	t.Helper()
	hook := fmt.Sprintf(`{"version": "1.0.0", "hook": {"path": "/bin/sh", "args": ["sh", "-c", "cat >%s/state"]},
		"when": {"annotations": {"^podd.test/hook$": "^yes$"}}, "stages": ["createRuntime"]}`, dir)
	base := `{"ociVersion": "1.0.2", "process": {"user": {"uid": 0, "gid": 0, "umask": 63}, "args": ["no"], "cwd": "/",
		"env": ["BASE=b", "NODE=base"], "rlimits": [{"type": "RLIMIT_CORE", "hard": 4096, "soft": 4096}]},
		"mounts": [{"destination": "/base", "type": "tmpfs", "source": "base", "options": ["ro", "size=4k"]}],
		"linux": {"resources": {"pids": {"limit": 33}}}}`
	for path, text := range map[string]string{"hooks/10-state.json": hook, "base.json": base} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return []string{
		`runtime.default_ulimits.nofile="700:800"`, `runtime.default_ulimits.core="0:8192"`,
		`runtime.default_capabilities=["CHOWN", "CAP_KILL", "SETUID", "SETGID"]`,
		`runtime.default_env=["NODE=n", "PATH=/none", "A=b"]`, `runtime.pids_limit=50`, `runtime.shm_size=8388608`,
		`runtime.timezone="Asia/Kathmandu"`, `runtime.read_only=true`,
		`runtime.min_injected_gomaxprocs=3`, `runtime.exec_cpu_affinity="first"`,
		`runtime.hooks_dirs=["` + dir + `/none", "` + dir + `/hooks"]`,
		`runtime.handlers.crun.base_runtime_spec="` + dir + `/base.json"`,
		`runtime.handlers.gvisor-shim.base_runtime_spec="` + dir + `/base.json"`,
	}
}

// TestNodeDefaults looks inside containers for what the node's configuration sets.
func TestNodeDefaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	k := start(t, nodeDefaults(t, dir)...)
	for handler, want := range map[string]nodeWant{
		"runc":        {core: "0 16", env: "n ", pids: "50", umask: "0022"},
		"crun":        {core: "8 8", env: "base b", pids: "33", umask: "0077", mount: "/base"},
		"gvisor":      {core: "0 16", env: "n "},
		"gvisor-shim": {core: "8 8", env: "base b", mount: "/base"},
	} {
		t.Run(handler, func(t *testing.T) { checkNodeDefaults(k.sub(t), handler, dir, want) })
	}
}

// nodeWant is what differs between the handlers of TestNodeDefaults.
type nodeWant struct {
	core, env, pids, umask, mount string
}

func checkNodeDefaults(k *kubelet, handler, dir string, want nodeWant) {
	podCfg := k.podConfig(func(c *cri.PodSandboxConfig) { c.Annotations["podd.test/hook"] = "yes" })
	pod := k.runPod(podCfg, handler)
	cpus := allowedCPUs(k)
	id, _ := k.runIn(pod, podCfg, []string{"sleep", "10000"}, func(c *cri.ContainerConfig) {
		c.Envs = []*cri.KeyValue{{Key: "A", Value: []byte("container")}}
		c.Linux.Resources.CpuShares, c.Linux.Resources.CpusetCpus = 1500, cpus
	})
	for _, c := range []struct{ what, command, want string }{
		{"open files", "ulimit -Sn; ulimit -Hn", "700\n800\n"},
		{"core size in blocks of 512 bytes", "echo $(ulimit -Sc) $(ulimit -Hc)", want.core + "\n"},
		{"capabilities", "grep CapBnd: /proc/self/status", "CapBnd:\t00000000000000e1\n"},
		{"environment", `echo "$NODE $BASE"; echo $A; which sh`, want.env + "\ncontainer\n/bin/sh\n"},
		{"GOMAXPROCS", "echo $GOMAXPROCS", "4\n"},
		{"time zone", "date +%z", "+0545\n"},
		{"read-only root", "touch /x 2>/dev/null || echo no; touch /tmp/x /run/x /var/tmp/x && echo yes", "no\nyes\n"},
		{"mount of the base spec", "grep -o ' /base ' /proc/mounts || true", strings.Repeat(" "+want.mount+" \n",
			min(len(want.mount), 1))},
	} {
		if got := k.exec(id, c.command); got != c.want {
			k.Errorf("%s = %q, want %q", c.what, got, c.want)
		}
	}
	if want.umask != "" { // gVisor has no pids controller, ignores the umask, and its shim mounts a /dev/shm of its own
		got := k.exec(id, "df -k /dev/shm | awk 'END {print $2}'; umask; "+
			"cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null || true")
		if want := "8192\n" + want.umask + "\n" + want.pids + "\n"; got != want {
			k.Errorf("size of /dev/shm, umask and pids.max = %q, want %q", got, want)
		}
	}
	if handler == "runc" { // crun since 1.21
		first := cpus[:strings.IndexAny(cpus+"-", "-,")]
		got := strings.Fields(k.exec(id, "cat /proc/1/status /proc/self/status | grep Cpus_allowed_list: | cut -f 2"))
		if !slices.Equal(got, []string{cpus, first}) {
			k.Errorf("CPUs of the container and of a command: %q, want %s and %s", got, cpus, first)
		}
	}
	state, err := os.ReadFile(filepath.Join(dir, "state"))
	if err != nil || !strings.Contains(string(state), id) {
		k.Errorf("the hook wrote %.200q, %v; want the state of container %s", state, err, id)
	}
}

// allowedCPUs returns the CPUs of this process, as a list of cpusets.
func allowedCPUs(k *kubelet) string {
	k.Helper()
	status, err := os.ReadFile("/proc/self/status")
	k.ok("read the status of the test", err)
	_, list, _ := strings.Cut(string(status), "Cpus_allowed_list:")
	list, _, _ = strings.Cut(list, "\n")
	return strings.TrimSpace(list)
}

// TestDefaultLimits: without keys of their own, containers do not have the daemon's limits.
func TestDefaultLimits(t *testing.T) {
	t.Parallel()
	k := start(t)
	var most unix.Rlimit // podd may be unable to raise its own
	k.ok("getrlimit", unix.Getrlimit(unix.RLIMIT_NOFILE, &most))
	var core unix.Rlimit
	k.ok("read podd's limit of core files", unix.Prlimit(k.Pid(), unix.RLIMIT_CORE, nil, &core))
	core.Cur = core.Max // as podd.service sets it
	k.ok("raise podd's limit of core files", unix.Prlimit(k.Pid(), unix.RLIMIT_CORE, &core, nil))
	_, id := k.sleeper()
	limits := k.exec(id, "ulimit -Sc; ulimit -Sn; ulimit -Hn")
	if want := fmt.Sprintf("0\n1024\n%d\n", min(524288, most.Max)); limits != want && limits != "0\n1024\n524288\n" {
		k.Errorf("core size and open files = %q, want %q", limits, want)
	}
}

// TestDeviceOwnership is containerd's device_ownership_from_security_context, which KubeVirt needs.
func TestDeviceOwnership(t *testing.T) {
	t.Parallel()
	k := start(t, `runtime.device_ownership_from_security_context=true`)
	const command = "stat -c '%u %g' /dev/mine && head -c 1 /dev/mine | wc -c"
	device := func(uid, gid int64) func(*cri.ContainerConfig) {
		return func(c *cri.ContainerConfig) {
			c.Devices = []*cri.Device{{HostPath: "/dev/zero", ContainerPath: "/dev/mine", Permissions: "rw"}}
			c.Linux.SecurityContext.RunAsUser = &cri.Int64Value{Value: uid}
			c.Linux.SecurityContext.RunAsGroup = &cri.Int64Value{Value: gid}
		}
	}
	for _, handler := range sample.Some(t, "runc", "crun") {
		t.Run(handler, func(t *testing.T) {
			k := k.sub(t)
			podCfg := k.podConfig()
			pod := k.runPod(podCfg, handler)
			for _, c := range []struct {
				uid, gid int64
				want     string
			}{{107, 36, "107 36\n1\n"}, {107, 0, "107 0\n1\n"}, {0, 0, "0 0\n1\n"}} {
				if got, exit := k.outputIn(pod, podCfg, command, device(c.uid, c.gid)); exit != 0 || got != c.want {
					t.Errorf("user %d, group %d: owner and bytes read = %q, exit code %d, want %q", c.uid, c.gid, got, exit, c.want)
				}
			}
		})
	}
	t.Run("in a user namespace", func(t *testing.T) {
		k := k.sub(t)
		mapping := []*cri.IDMapping{{HostId: 100000, ContainerId: 0, Length: 65536}}
		options := &cri.NamespaceOption{
			Pid:           cri.NamespaceMode_CONTAINER,
			UsernsOptions: &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: mapping, Gids: mapping},
		}
		pod, podCfg := k.pod(func(c *cri.PodSandboxConfig) { c.Linux.SecurityContext.NamespaceOptions = options })
		got, exit := k.outputIn(pod, podCfg, command, device(107, 36), func(c *cri.ContainerConfig) {
			c.Linux.SecurityContext.NamespaceOptions = options
		})
		if exit != 0 || got != "65534 65534\n1\n" { // the node's root is not mapped
			t.Errorf("owner and bytes read = %q, exit code %d, want the unmapped 65534 and 1", got, exit)
		}
	})
}
