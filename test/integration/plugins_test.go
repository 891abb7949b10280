package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/podd-project/podd/test/sample"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestPlugins runs an NRI plugin, by the library that plugins are written with, on real runtimes.
func TestPlugins(t *testing.T) {
	t.Parallel()
	classes := filepath.Join(t.TempDir(), "blockio.yaml")
	if err := os.WriteFile(classes, []byte(blockIOClasses), 0o600); err != nil {
		t.Fatal(err)
	}
	k := start(t, fmt.Sprintf("runtime.blockio_config_file = %q", classes))
	for _, handler := range sample.Some(t, "runc", "crun") {
		t.Run(handler, func(t *testing.T) {
			for _, c := range []struct {
				name string
				test func(*kubelet, string)
			}{
				{"adjust", pluginAdjusts},
				{"block I/O", pluginChoosesBlockIO},
				{"life", pluginIsTold},
				{"update", pluginUpdates},
				{"restart of podd", pluginAfterRestart},
				{"podd is killed in a request", pluginWhilePoddDies},
			} {
				t.Run(c.name, func(t *testing.T) { c.test(k.sub(t), handler) })
			}
		})
	}
	t.Run("a plugin refuses pods", func(t *testing.T) { pluginRefusesPods(k.sub(t)) })
	t.Run("gvisor", func(t *testing.T) { pluginRefusedByGVisor(k.sub(t)) })
	t.Run("restored pod", func(t *testing.T) { pluginOfRestoredPod(k.sub(t)) })
}

// plugin notes what it is told, and does what its functions say.
type plugin struct {
	stub   stub.Stub
	synced chan struct{}
	create func(c *api.Container) *api.ContainerAdjustment
	// refusal is the answer to RunPodSandbox.
	refusal error
	// noted, if set, is called at each request with the verb.
	noted func(verb string)

	mu   sync.Mutex
	told []string
	// found are the containers it was synchronised with.
	found map[string]*api.Container
}

// connect connects the plugin until the end of the subtest.
func (k *kubelet) connect(p *plugin) *plugin {
	k.Helper()
	conn, err := net.Dial("unix", k.Path("run", "nri", "nri.sock"))
	k.ok("connect to the socket of plugins", err)
	p.synced, p.found = make(chan struct{}), map[string]*api.Container{}
	p.stub, err = stub.New(p, stub.WithConnection(conn), stub.WithPluginName("integration"), stub.WithPluginIdx("10"),
		stub.WithOnClose(func() {}))
	k.ok("make the plugin", err)
	k.ok("start the plugin", p.stub.Start(k.ctx()))
	k.Cleanup(p.stub.Stop)
	k.eventually("the plugin is synchronised", func() bool {
		select {
		case <-p.synced:
			return true
		default:
			return false
		}
	})
	return p
}

func (p *plugin) note(verb, id string) error {
	p.mu.Lock()
	p.told = append(p.told, verb+" "+id)
	p.mu.Unlock()
	if p.noted != nil {
		p.noted(verb)
	}
	return nil
}

func (p *plugin) list() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.told)
}

func (p *plugin) Synchronize(_ context.Context, _ []*api.PodSandbox, containers []*api.Container) (
	[]*api.ContainerUpdate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range containers {
		p.found[c.GetId()] = c
	}
	close(p.synced)
	return nil, nil
}

func (p *plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	if len(pod.GetIps()) == 0 || pod.GetLinux().GetNamespaces() == nil {
		return fmt.Errorf("pod %s has no address or network namespace", pod.GetId())
	}
	_ = p.note("RunPodSandbox", pod.GetId())
	return p.refusal
}

func (p *plugin) CreateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) (
	*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	p.note("CreateContainer", c.GetId())
	if p.create == nil {
		return nil, nil, nil
	}
	return p.create(c), nil, nil
}

func (p *plugin) PostCreateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	return p.note("PostCreateContainer", c.GetId())
}

func (p *plugin) StartContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	return p.note("StartContainer", c.GetId())
}

func (p *plugin) PostStartContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	return p.note("PostStartContainer", c.GetId())
}

func (p *plugin) StopContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	return nil, p.note("StopContainer", c.GetId())
}

func (p *plugin) RemoveContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	return p.note("RemoveContainer", c.GetId())
}

func (p *plugin) StopPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return p.note("StopPodSandbox", pod.GetId())
}

func (p *plugin) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return p.note("RemovePodSandbox", pod.GetId())
}

// pluginAdjusts: what the plugin changes is in force inside the container.
func pluginAdjusts(k *kubelet, handler string) {
	dir := k.Path("plugin-" + handler)
	k.ok("make a directory", os.MkdirAll(dir, 0o755))
	k.ok("make a file", os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o644))
	k.connect(&plugin{create: func(*api.Container) *api.ContainerAdjustment {
		a := &api.ContainerAdjustment{}
		a.AddEnv("NRI", "set")
		a.RemoveEnv("GONE")
		a.AddMount(&api.Mount{Destination: "/nri", Type: "bind", Source: dir, Options: []string{"rbind", "ro"}})
		a.AddDevice(&api.LinuxDevice{Path: "/dev/nri", Type: "c", Major: 1, Minor: 5})
		a.AddRlimit("RLIMIT_NOFILE", 600, 500)
		a.SetLinuxOomScoreAdj(new(321))
		a.SetLinuxSysctl("net.ipv4.tcp_keepalive_time", "77")
		a.AddHooks(&api.Hooks{CreateRuntime: []*api.Hook{
			{Path: "/bin/sh", Args: []string{"sh", "-c", "cat >" + dir + "/hook"}},
		}})
		a.SetLinuxCPUShares(777)
		a.SetLinuxPidLimits(55)
		return a
	}})
	podCfg := k.podConfig()
	pod := k.runPod(podCfg, handler)
	got, exit := k.outputIn(pod, podCfg, "echo $NRI.$GONE; cat /nri/file; echo; head -c 3 /dev/nri | wc -c; "+
		"ulimit -Sn; ulimit -Hn; cat /proc/self/oom_score_adj; cat /proc/sys/net/ipv4/tcp_keepalive_time; "+
		"grep -c bundle /nri/hook; cat /sys/fs/cgroup/pids/pids.max 2>/dev/null || cat /sys/fs/cgroup/pids.max",
		func(c *cri.ContainerConfig) {
			c.Envs = []*cri.KeyValue{{Key: "GONE", Value: []byte("here")}}
			c.Linux.Resources.MemoryLimitInBytes = 64 << 20
		})
	if want := "set.\ncontent\n3\n500\n600\n321\n77\n1\n55\n"; exit != 0 || got != want {
		k.Errorf("output = %q, exit code %d, want %q", got, exit, want)
	}
	for _, c := range k.containers(&cri.ContainerFilter{PodSandboxId: pod}) {
		r := k.container(c.Id).GetResources().GetLinux()
		if r.GetCpuShares() != 777 || r.GetOomScoreAdj() != 321 || r.GetMemoryLimitInBytes() != 64<<20 {
			k.Errorf("resources in the status = %v, want those of the plugin and the memory of the request", r)
		}
	}
}

// blockIOClasses limits the disks that test machines have.
const blockIOClasses = `Classes:
  slow:
  - Devices: ["/dev/[hsv]d[a-z]", "/dev/nvme*n1", "/dev/loop[0-9]"]
    ThrottleReadBps: 3M
  slower:
  - Devices: ["/dev/[hsv]d[a-z]", "/dev/nvme*n1", "/dev/loop[0-9]"]
    ThrottleReadBps: 2M
`

// pluginChoosesBlockIO: a container gets the limits of the class of its pod, or of the plugin's. Unknown classes
// are refused, and a class for a container that runs.
func pluginChoosesBlockIO(k *kubelet, handler string) {
	const limits = "cd /sys/fs/cgroup; cat io.max blkio/blkio.throttle.read_bps_device"
	k.refused("a pod names an unknown class", blockIOContainer(k, handler, "fast"), "no class", codes.InvalidArgument)
	podCfg := k.podConfig(annotated("blockio.resources.beta.kubernetes.io/pod", "slow"))
	pod := k.runPod(podCfg, handler)
	if got, _ := k.outputIn(pod, podCfg, limits); !strings.Contains(got, "3000000") {
		k.Errorf("limits by annotation: %q, want 3000000", got)
	}
	p := k.connect(&plugin{create: func(c *api.Container) *api.ContainerAdjustment {
		a := &api.ContainerAdjustment{}
		a.SetLinuxBlockIOClass("slower")
		if c.GetName() == "c" {
			a.SetLinuxBlockIOClass("fast")
		}
		return a
	}})
	if got, _ := k.outputIn(pod, podCfg, limits); !strings.Contains(got, "2000000") {
		k.Errorf("limits by the plugin: %q, want 2000000", got)
	}
	id, _ := k.runIn(pod, podCfg, []string{"sleep", "10000"})
	u := &api.ContainerUpdate{ContainerId: id}
	u.SetLinuxBlockIOClass("slow")
	failed, err := p.stub.UpdateContainers([]*api.ContainerUpdate{u})
	if err == nil && len(failed) == 0 {
		k.Error("a class of a container that runs was accepted")
	}
	err = blockIOContainer(k, handler, "slow")
	k.refused("the plugin names an unknown class", err, "no class", codes.InvalidArgument)
}

// blockIOContainer returns the error of container "c", whose pod names a class.
func blockIOContainer(k *kubelet, handler, class string) error {
	podCfg := k.podConfig(annotated("blockio.resources.beta.kubernetes.io/container.c", class))
	_, err := k.tryCreate(k.runPod(podCfg, handler), k.containerConfig([]string{"true"}, func(c *cri.ContainerConfig) {
		c.Metadata.Name = "c"
	}), podCfg)
	return err
}

func annotated(key, value string) func(*cri.PodSandboxConfig) {
	return func(c *cri.PodSandboxConfig) { c.Annotations = map[string]string{key: value} }
}

// pluginIsTold: the plugin is told of the life of a pod, in order.
func pluginIsTold(k *kubelet, handler string) {
	p := k.connect(&plugin{})
	podCfg := k.podConfig()
	pod := k.runPod(podCfg, handler)
	id, _ := k.runIn(pod, podCfg, []string{"sleep", "10000"})
	k.stopContainer(id, 0)
	k.removeContainer(id)
	k.stopPod(pod)
	k.removePod(pod)
	want := []string{
		"RunPodSandbox " + pod, "CreateContainer " + id, "PostCreateContainer " + id, "StartContainer " + id,
		"PostStartContainer " + id, "StopContainer " + id, "RemoveContainer " + id, "StopPodSandbox " + pod,
		"RemovePodSandbox " + pod,
	}
	k.eventually("the plugin is told of everything", func() bool { return len(p.list()) == len(want) })
	if got := p.list(); !slices.Equal(got, want) {
		k.Errorf("the plugin was told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// pluginUpdates: a plugin changes the limits of a container that runs.
func pluginUpdates(k *kubelet, handler string) {
	p := k.connect(&plugin{})
	podCfg := k.podConfig()
	id, _ := k.runIn(k.runPod(podCfg, handler), podCfg, []string{"sleep", "10000"})
	u := &api.ContainerUpdate{ContainerId: id}
	u.SetLinuxCPUShares(333)
	u.SetLinuxCPUSetCPUs("0")
	failed, err := p.stub.UpdateContainers([]*api.ContainerUpdate{u})
	if err != nil || len(failed) > 0 {
		k.Errorf("UpdateContainers = %v, %v, want it done", failed, err)
	}
	r := k.container(id).GetResources().GetLinux()
	if r.GetCpuShares() != 333 || r.GetCpusetCpus() != "0" {
		k.Errorf("resources in the status = %v, want the plugin's", r)
	}
	if got := k.exec(id, "grep Cpus_allowed_list /proc/self/status | cut -f 2"); got != "0\n" {
		k.Errorf("CPUs of a process = %q, want 0 only", got)
	}
	u.ContainerId = "absent"
	if _, err := p.stub.UpdateContainers([]*api.ContainerUpdate{u}); err != nil {
		k.Errorf("UpdateContainers of a container that is gone = %v, want none", err)
	}
}

// pluginAfterRestart: a restart of podd loses no adjustment, and a plugin that connects again finds the container.
func pluginAfterRestart(k *kubelet, handler string) {
	k.connect(&plugin{create: func(*api.Container) *api.ContainerAdjustment {
		a := &api.ContainerAdjustment{}
		a.AddEnv("NRI", "kept")
		a.SetLinuxCPUShares(555)
		return a
	}})
	podCfg := k.podConfig()
	id, _ := k.runIn(k.runPod(podCfg, handler), podCfg, []string{"sleep", "10000"})
	config := k.Path("run", "containers", id, "config.json")
	before, err := os.ReadFile(config)
	k.ok("read config.json", err)
	if !bytes.Contains(before, []byte(`"NRI=kept"`)) || !bytes.Contains(before, []byte(`"shares":555`)) {
		k.Errorf("config.json has no variable or shares of the plugin:\n%s", before)
	}
	k.ok("restart podd", k.Restart(k.ctx(), k.Kill9))
	if after, err := os.ReadFile(config); err != nil || !bytes.Equal(after, before) {
		k.Errorf("config.json after a restart: %v, differs from that before:\n%s\n%s", err, before, after)
	}
	if got := k.container(id).GetResources().GetLinux().GetCpuShares(); got != 555 {
		k.Errorf("shares in the status after a restart = %d, want 555", got)
	}
	again := k.connect(&plugin{})
	found := again.found[id]
	if !slices.Contains(found.GetEnv(), "NRI=kept") || found.GetState() != api.ContainerState_CONTAINER_RUNNING ||
		found.GetLinux().GetResources().GetCpu().GetShares().GetValue() != 555 {
		k.Errorf("the plugin found %v, want the container running, with its variable and shares", found)
	}
	if got := k.exec(id, "echo $NRI"); got != "kept\n" {
		k.Errorf("variable of the plugin in an exec = %q, want kept", got)
	}
	k.stopContainer(id, 0)
	k.eventually("the plugin is told of the stop", func() bool {
		return slices.Contains(again.list(), "StopContainer "+id)
	})
}

// pluginWhilePoddDies: podd is killed between the plugin's answer and the creation. The kubelet's retry succeeds, and
// nothing is left of the first one.
func pluginWhilePoddDies(k *kubelet, handler string) {
	podCfg := k.podConfig()
	pod := k.runPod(podCfg, handler)
	asked, killed := make(chan struct{}), make(chan struct{})
	k.connect(&plugin{create: func(*api.Container) *api.ContainerAdjustment {
		close(asked)
		<-killed
		return nil
	}})
	cfg := k.containerConfig([]string{"sleep", "10000"})
	failed := make(chan error, 1)
	go func() {
		_, err := k.tryCreate(pod, cfg, podCfg)
		failed <- err
	}()
	<-asked
	k.ok("restart podd", k.Restart(k.ctx(), func() error {
		defer close(killed)
		return k.Kill9()
	}))
	if err := <-failed; err == nil {
		k.Error("CreateContainer succeeded although podd was killed in it")
	}
	k.connect(&plugin{})
	k.startContainer(k.create(pod, cfg, podCfg))
	if got := k.containers(&cri.ContainerFilter{PodSandboxId: pod}); len(got) != 1 {
		k.Errorf("the pod has %d containers, want 1", len(got))
	}
}

// pluginRefusesPods: nothing is left of refused pods, also after a restart, and the same pod runs without the plugin.
func pluginRefusesPods(k *kubelet) {
	p := k.connect(&plugin{refusal: errors.New("not on this node")})
	cfg := k.podConfig()
	k.ok("make the pod's log directory", os.MkdirAll(cfg.LogDirectory, 0o755))
	for range 3 {
		_, err := k.Runtime.RunPodSandbox(k.ctx(), &cri.RunPodSandboxRequest{Config: cfg})
		if err == nil || !strings.Contains(err.Error(), "not on this node") {
			k.Errorf("RunPodSandbox = %v, want the plugin's refusal", err)
		}
	}
	left := func() {
		k.Helper()
		if pods := k.pods(nil); len(pods) > 0 {
			k.Errorf("pods that were refused = %v, want none", pods)
		}
	}
	left()
	p.stub.Stop()
	k.ok("restart podd", k.Restart(k.ctx(), k.Kill9))
	left()
	k.runPod(cfg, "runc")
}

// pluginRefusedByGVisor: a field that gVisor would ignore refuses the container, with its name.
func pluginRefusedByGVisor(k *kubelet) {
	k.connect(&plugin{create: func(*api.Container) *api.ContainerAdjustment {
		a := &api.ContainerAdjustment{}
		a.AddDevice(&api.LinuxDevice{Path: "/dev/nri", Type: "c", Major: 1, Minor: 5})
		return a
	}})
	podCfg := k.podConfig()
	_, err := k.tryCreate(k.runPod(podCfg, "gvisor"), k.containerConfig([]string{"true"}), podCfg)
	if err == nil || !strings.Contains(err.Error(), "linux.devices") {
		k.Errorf("CreateContainer = %v, want an error that names linux.devices", err)
	}
}

// pluginOfRestoredPod: a plugin gets the events of a restored pod, and cannot adjust what its checkpoint contains.
func pluginOfRestoredPod(k *kubelet) {
	c, dir := k.counting("gvisor"), k.snapshotDir()
	k.ok("CheckpointPod", c.checkpoint(dir))
	adjusting := k.connect(&plugin{create: func(*api.Container) *api.ContainerAdjustment {
		a := &api.ContainerAdjustment{}
		a.AddEnv("NRI", "lost")
		return a
	}})
	_, err := k.Runtime.RestorePod(k.ctx(), c.restoreRequest(dir))
	if err == nil || !strings.Contains(err.Error(), "env: the container continues from a checkpoint") {
		k.Errorf("RestorePod = %v, want an error that names env", err)
	}
	adjusting.stub.Stop()
	p := k.connect(&plugin{create: func(*api.Container) *api.ContainerAdjustment {
		a := &api.ContainerAdjustment{}
		a.AddAnnotation("nri", "kept")
		return a
	}})
	restored := c.restore(dir)
	for _, id := range restored.containers {
		k.startContainer(id)
		config, err := os.ReadFile(k.Path("run", "containers", id, "config.json"))
		k.ok("read config.json", err)
		if !bytes.Contains(config, []byte(`"nri":"kept"`)) {
			k.Errorf("config.json of a restored container has no annotation of the plugin:\n%s", config)
		}
	}
	restored.runs()
	for _, want := range []string{
		"RunPodSandbox " + restored.pod,
		"CreateContainer " + restored.containers[0], "StartContainer " + restored.containers[0],
		"CreateContainer " + restored.containers[1], "StartContainer " + restored.containers[1],
	} {
		if !slices.Contains(p.list(), want) {
			k.Errorf("the plugin was told\n%s\nwant %s", strings.Join(p.list(), "\n"), want)
		}
	}
}

// TestPluginOfTheNode: a plugin program in the plugin directory, which podd starts, and the ways to have none.
func TestPluginOfTheNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeProgram(t, dir)
	k := start(t, `nri.plugin_dir="`+dir+`/plugins"`, `nri.config_dir="`+dir+`"`, `nri.registration_timeout="1m"`,
		`nri.request_timeout="8s"`,
		`nri.validator.enable=true`, `nri.validator.reject_oci_hook_adjustment=true`)
	t.Run("socket is root's", func(t *testing.T) {
		k := k.sub(t)
		info, err := os.Stat(k.Path("run", "nri", "nri.sock"))
		k.ok("find the socket", err)
		if info.Mode().Perm() != 0o600 {
			k.Errorf("mode of the socket = %o, want 600", info.Mode().Perm())
		}
	})
	t.Run("validator", func(t *testing.T) {
		k := k.sub(t)
		k.connect(&plugin{create: func(*api.Container) *api.ContainerAdjustment {
			a := &api.ContainerAdjustment{}
			a.AddHooks(&api.Hooks{Poststop: []*api.Hook{{Path: "/bin/true"}}})
			return a
		}})
		podCfg := k.podConfig()
		pod := k.runPod(podCfg, "runc")
		_, err := k.tryCreate(pod, k.containerConfig([]string{"true"}), podCfg)
		if err == nil || !strings.Contains(err.Error(), "hook") {
			k.Errorf("CreateContainer = %v, want the validator's refusal of hooks", err)
		}
		if got := k.containers(&cri.ContainerFilter{PodSandboxId: pod}); len(got) != 0 {
			k.Errorf("%d containers are left of a refused creation, want none", len(got))
		}
	})
	t.Run("others start while one hangs", func(t *testing.T) { othersStart(k.sub(t)) })
	t.Run("program ends with podd", func(t *testing.T) { programEndsWithPodd(k.sub(t), dir) })
}

// writeProgram puts a program into the plugin directory that writes its pid to a file and does not connect.
func writeProgram(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, "plugins", "10-silent")
	err := errors.Join(
		os.Mkdir(filepath.Dir(path), 0o755),
		os.WriteFile(path, []byte("#!/bin/sh\necho $$ >"+dir+"/pid.new; mv "+dir+"/pid.new "+dir+"/pid\nexec sleep 1000\n"),
			0o755))
	if err != nil {
		t.Fatal(err)
	}
}

// programEndsWithPodd: a plugin that podd has started ends when podd is killed, even if it ignores the end of its
// connection, and the next podd starts it again.
func programEndsWithPodd(k *kubelet, dir string) {
	lives := func(pid string) bool { // a process that has ended and is not reaped has no command
		command, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		return strings.HasPrefix(string(command), "sleep")
	}
	pid := func() (pid string) {
		k.eventually("the plugin has started", func() bool {
			text, err := os.ReadFile(filepath.Join(dir, "pid"))
			pid = strings.TrimSpace(string(text))
			return err == nil && lives(pid)
		})
		return pid
	}
	first := pid()
	k.ok("restart podd", k.Restart(k.ctx(), func() error {
		err := k.Kill9()
		k.eventually("the plugin has ended", func() bool { return !lives(first) })
		return err
	}))
	if again := pid(); again == first {
		k.Errorf("pid of the plugin = %s after the restart, want another process", again)
	}
}

// othersStart: while a plugin hangs in the creation of one container, others that the plugin is not asked about run,
// exec, stop and are removed as ever, and the one is created without the plugin when its time is over.
func othersStart(k *kubelet) {
	podCfg := k.podConfig()
	pod := k.runPod(podCfg, "runc")
	running, _ := k.runIn(pod, podCfg, []string{"sleep", "10000"})
	asked, end := make(chan struct{}), make(chan struct{})
	defer close(end)
	k.connect(&plugin{create: func(*api.Container) *api.ContainerAdjustment {
		close(asked)
		<-end
		return nil
	}})
	created := make(chan error, 1)
	cfg := k.containerConfig([]string{"sleep", "10000"})
	go func() {
		_, err := k.tryCreate(pod, cfg, podCfg)
		created <- err
	}()
	<-asked
	begin := time.Now()
	k.exec(running, "true")
	k.stopContainer(running, 0)
	k.removeContainer(running)
	if took := time.Since(begin); took > 6*time.Second {
		k.Errorf("exec, stop and removal took %v while a plugin hangs, want less than the 8 s it has", took)
	}
	if err := <-created; err != nil {
		k.Errorf("CreateContainer with a plugin that hangs = %v, want the container without the plugin", err)
	}
}
