package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// countForever prints a line with its name and a number ten times a second, and has the last number in /tmp/n.
const countForever = `trap 'exit 9' TERM; i=0; while true; do i=$((i+1)); echo $0 $i; echo $i > /tmp/n; sleep 0.1; done`

// counting is a pod with two containers that count.
type counting struct {
	*kubelet
	handler    string
	pod        string
	podConfig  *cri.PodSandboxConfig
	containers []string
	configs    []*cri.ContainerConfig
}

func (k *kubelet) counting(handler string) *counting {
	k.Helper()
	cfg := k.podConfig()
	c := &counting{kubelet: k, handler: handler, pod: k.runPod(cfg, handler), podConfig: cfg}
	for _, name := range []string{"one", "two"} {
		id, config := k.runIn(c.pod, cfg, []string{"sh", "-c", countForever, name})
		c.containers, c.configs = append(c.containers, id), append(c.configs, config)
	}
	return c
}

// snapshotDir is a directory as the kubelet makes one for a checkpoint.
func (k *kubelet) snapshotDir() string {
	k.Helper()
	dir, err := os.MkdirTemp(k.Path(), "snapshot-")
	k.ok("make directory", err)
	k.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (c *counting) checkpoint(dir string, change ...func(*cri.CheckpointPodRequest)) error {
	ctx, cancel := context.WithTimeout(c.ctx(), time.Minute)
	defer cancel()
	r := &cri.CheckpointPodRequest{PodSandboxId: c.pod, OutputPath: dir, ContainerIds: c.containers}
	for _, f := range change {
		f(r)
	}
	_, err := c.Runtime.CheckpointPod(ctx, r)
	return err
}

// restoreRequest is a request for a new pod from the checkpoint of c in dir.
func (c *counting) restoreRequest(dir string) *cri.RestorePodRequest {
	r := &cri.RestorePodRequest{CheckpointPath: dir, Config: c.kubelet.podConfig(), RuntimeHandler: c.handler}
	for _, config := range c.configs {
		r.ContainerConfigs = append(r.ContainerConfigs, proto.Clone(config).(*cri.ContainerConfig))
	}
	os.MkdirAll(r.Config.LogDirectory, 0o755)
	return r
}

func (c *counting) restore(dir string) *counting {
	c.Helper()
	r := c.restoreRequest(dir)
	response, err := c.Runtime.RestorePod(c.ctx(), r)
	c.ok("RestorePod", err)
	restored := &counting{
		kubelet: c.kubelet, handler: c.handler, pod: response.PodSandboxId, podConfig: r.Config, configs: r.ContainerConfigs,
	}
	for i, container := range response.RestoredContainers {
		if want := r.ContainerConfigs[i].Metadata.Name; container.Name != want {
			c.Errorf("restored container %d is %q, want %q", i, container.Name, want)
		}
		restored.containers = append(restored.containers, container.ContainerId)
	}
	return restored
}

// count returns the last number that container i has printed, 0 for none.
func (c *counting) count(i int) int {
	c.Helper()
	data, _ := os.ReadFile(filepath.Join(c.podConfig.LogDirectory, c.configs[i].LogPath))
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	last := strings.Fields(lines[len(lines)-1])
	if len(last) < 5 {
		return 0
	}
	n, _ := strconv.Atoi(last[4])
	return n
}

// runs fails the test unless both containers count on.
func (c *counting) runs() {
	c.Helper()
	for i := range c.containers {
		before := c.count(i)
		c.eventually(fmt.Sprintf("container %d counts on", i), func() bool { return c.count(i) > before })
	}
}

// TestSnapshot: a pod of gVisor is saved and restored as another pod, with its processes and files.
func TestSnapshot(t *testing.T) {
	k := start(t)
	t.Run("round trip", func(t *testing.T) { roundTrip(k.sub(t), "gvisor") })
	t.Run("restored pod is saved", func(t *testing.T) { snapshotOfRestored(k.sub(t), "gvisor") })
	t.Run("copies at once", func(t *testing.T) { copiesAtOnce(k.sub(t), "gvisor") })
	t.Run("exec meanwhile", func(t *testing.T) { snapshotDuringExec(k.sub(t), "gvisor") })
	t.Run("removed meanwhile", func(t *testing.T) { snapshotOfRemoved(k.sub(t)) })
	t.Run("terminal", func(t *testing.T) { snapshotOfTerminal(k.sub(t)) })
	t.Run("by command", func(t *testing.T) { snapshotByCommand(k.sub(t), "gvisor") })
	t.Run("not started", func(t *testing.T) { restoreWithoutStart(k.sub(t), "gvisor") })
	t.Run("disk full", func(t *testing.T) { snapshotOnFullDisk(k.sub(t), "gvisor", "size=64k") })
	t.Run("restore under load of the kubelet", func(t *testing.T) { restoreUnderLoad(k.sub(t), "gvisor") })
	t.Run("deadline", func(t *testing.T) { snapshotPastDeadline(k.sub(t), "gvisor") })
	t.Run("podd is killed", func(t *testing.T) { snapshotWithoutPodd(k.sub(t), "gvisor") })
	t.Run("runsc is killed", func(t *testing.T) { snapshotWithoutRunsc(k.sub(t)) })
	t.Run("refused", func(t *testing.T) { refusedSnapshots(k.sub(t)) })
	t.Run("refused restore", func(t *testing.T) { refusedRestores(k.sub(t)) })
}

// roundTrip saves and restores a pod of a handler.
func roundTrip(k *kubelet, handler string) {
	c, dir := k.counting(handler), k.snapshotDir()
	k.exec(c.containers[0], "echo kept > /data")
	began := time.Now()
	k.ok("CheckpointPod", c.checkpoint(dir))
	k.Logf("checkpoint of two containers: %v", time.Since(began))
	c.runs()
	saved := []int{c.count(0), c.count(1)}

	began = time.Now()
	r := c.restore(dir)
	k.Logf("restore: %v", time.Since(began))
	for i, id := range r.containers {
		if s := k.container(id); s.State != cri.ContainerState_CONTAINER_CREATED {
			k.Errorf("restored container is %v, want created", s.State)
		}
		if n := r.count(i); n != 0 {
			k.Errorf("restored container has printed %d before its start, want nothing", n)
		}
	}
	began = time.Now()
	for _, id := range r.containers {
		k.startContainer(id)
	}
	k.Logf("start: %v", time.Since(began))
	r.runs()
	for i := range r.containers {
		data := k.logText(r.podConfig, r.configs[i])
		fields := strings.Fields(strings.SplitN(data, "\n", 2)[0])
		if first, _ := strconv.Atoi(fields[len(fields)-1]); first < 2 || first > saved[i]+1 {
			k.Errorf("first number of the restored container %d = %d, want it to continue from at most %d", i, first, saved[i])
		}
	}
	if got := k.exec(r.containers[0], "cat /data; hostname"); got != "kept\n"+r.podConfig.Hostname+"\n" {
		k.Errorf("file and host name in the restored container = %q, want kept and %s", got, r.podConfig.Hostname)
	}
	ip := k.podStatus(r.pod).Network.Ip
	if got := k.exec(r.containers[0], "ip addr"); ip == "" || !strings.Contains(got, ip) {
		k.Errorf("addresses in the restored pod = %q, want %s", got, ip)
	}
	c.runs()
	k.stopContainer(r.containers[0], 10)
	if s := k.exited(r.containers[0]); s.ExitCode != 9 {
		k.Errorf("exit code of the restored container after SIGTERM = %d, want 9, of its trap", s.ExitCode)
	}
}

// startAll starts the containers of a restored pod.
func (c *counting) startAll() {
	c.Helper()
	for _, id := range c.containers {
		c.startContainer(id)
	}
}

func snapshotOfRestored(k *kubelet, handler string) {
	c, first, second := k.counting(handler), k.snapshotDir(), k.snapshotDir()
	k.ok("CheckpointPod", c.checkpoint(first))
	r := c.restore(first)
	k.refused("CheckpointPod of containers that were not started", r.checkpoint(second), "only one that runs",
		codes.FailedPrecondition)
	r.startAll()
	r.runs()
	k.ok("CheckpointPod of the restored pod", r.checkpoint(second))
	saved := r.count(0)
	again := r.restore(second)
	again.startAll()
	again.runs()
	if n := again.count(0); n < saved {
		k.Errorf("count after the second restore = %d, want more than %d", n, saved)
	}
}

// snapshotOfRemoved: a pod can be removed while it is saved.
func snapshotOfRemoved(k *kubelet) {
	c, dir := k.counting("gvisor"), k.snapshotDir()
	k.exec(c.containers[0], "dd if=/dev/urandom of=/big bs=1M count=100")
	saved := make(chan error, 1)
	go func() { saved <- c.checkpoint(dir) }()
	k.eventually("the images are being written", func() bool {
		files, _ := os.ReadDir(filepath.Join(dir, "gvisor"))
		return len(files) == 3
	})
	k.removePod(c.pod)
	if err := <-saved; err != nil { // it may have been quicker
		k.isEmpty(dir)
	}
}

// snapshotOfTerminal: gVisor cannot give a restored container a terminal.
func snapshotOfTerminal(k *kubelet) {
	cfg, dir := k.podConfig(), k.snapshotDir()
	pod := k.runPod(cfg, "gvisor")
	id, _ := k.runIn(pod, cfg, []string{"sleep", "1000"}, func(c *cri.ContainerConfig) { c.Tty = true })
	c := &counting{kubelet: k, pod: pod, podConfig: cfg, containers: []string{id}}
	k.refused("CheckpointPod", c.checkpoint(dir), "terminal", codes.FailedPrecondition)
	k.isEmpty(dir)
}

// snapshotDuringExec: a command that runs meanwhile, such as a probe, ends as if nothing had happened. It is not in the
// restored pod.
func snapshotDuringExec(k *kubelet, handler string) {
	c, dir := k.counting(handler), k.snapshotDir()
	k.exec(c.containers[0], "dd if=/dev/urandom of=/big bs=1M count=100")
	probe := make(chan string, 1)
	go func() {
		r, err := k.Runtime.ExecSync(k.ctx(), &cri.ExecSyncRequest{ContainerId: c.containers[0], Timeout: 60,
			Cmd: []string{"sh", "-c", "touch /tmp/probe; sleep 4; echo done"}})
		probe <- fmt.Sprint(string(r.GetStdout()), r.GetExitCode(), err)
	}()
	k.eventually("the command runs", func() bool {
		return strings.Contains(k.exec(c.containers[0], "ls /tmp"), "probe")
	})
	saved := make(chan error, 1)
	go func() { saved <- c.checkpoint(dir) }()
	for range 5 {
		k.exec(c.containers[1], "true") // some of them while the pod is paused
	}
	k.ok("CheckpointPod", <-saved)
	if got, want := <-probe, "done\n0 <nil>"; got != want {
		k.Errorf("command that ran during the checkpoint = %q, want %q", got, want)
	}
	r := c.restore(dir)
	r.startAll()
	r.runs()
	if got := k.exec(r.containers[0], "ps"); strings.Contains(got, "sleep 4") {
		k.Errorf("processes of the restored container = %q, want none of the command", got)
	}
}

// restoreWithoutStart: the parts of a restored pod can be stopped and removed before they run, in any order, and after
// podd was killed.
func restoreWithoutStart(k *kubelet, handler string) {
	c, dir := k.counting(handler), k.snapshotDir()
	k.ok("CheckpointPod", c.checkpoint(dir))
	a, b := c.restore(dir), c.restore(dir)
	k.startContainer(a.containers[0])
	k.stopContainer(a.containers[0], 1)
	k.removeContainer(a.containers[1])
	k.eventually("no images are left of containers that never run", func() bool {
		_, err := os.Stat(k.Path("root", "pods", a.pod, "images"))
		return errors.Is(err, os.ErrNotExist)
	})
	k.removePod(a.pod)
	k.ok("kill podd", k.Kill9())
	k.ok("start podd", k.Start(k.ctx()))
	b.startAll()
	b.runs()
	if images, _ := filepath.Glob(k.Path("root", "pods", "*", "images")); len(images) > 0 {
		k.Errorf("images of a pod that runs: %q, want none", images)
	}
}

// restoreUnderLoad: while a pod is restored, the kubelet measures it and runs commands in it. They may be refused, with
// the reason, and the pod runs.
func restoreUnderLoad(k *kubelet, handler string) {
	c, dir := k.counting(handler), k.snapshotDir()
	k.ok("CheckpointPod", c.checkpoint(dir))
	k.removePod(c.pod)
	r := c.restore(dir)
	held := 0
	load := func() {
		_, err := k.Runtime.ListContainerStats(k.ctx(), &cri.ListContainerStatsRequest{})
		_, err2 := k.Runtime.ListPodSandboxStats(k.ctx(), &cri.ListPodSandboxStatsRequest{})
		_, err3 := k.Runtime.PodSandboxStats(k.ctx(), &cri.PodSandboxStatsRequest{PodSandboxId: r.pod})
		if err := errors.Join(err, err2, err3); err != nil {
			k.Errorf("statistics: %v", err)
		}
		_, err = k.Runtime.ExecSync(k.ctx(), &cri.ExecSyncRequest{
			ContainerId: r.containers[0], Cmd: []string{"true"}, Timeout: 60,
		})
		if err != nil {
			k.refused("ExecSync", err, "", codes.FailedPrecondition)
			held++
		}
	}
	load()
	k.startContainer(r.containers[0])
	load()
	if held != 2 {
		k.Errorf("%d commands were refused before the last container was started, want 2", held)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				load()
			}
		}
	}()
	_, err := k.Runtime.StartContainer(k.ctx(), &cri.StartContainerRequest{ContainerId: r.containers[1]})
	close(stop)
	<-stopped
	k.ok("StartContainer", err)
	r.runs()
	k.exec(r.containers[0], "true")
	stats, err := k.Runtime.ListContainerStats(k.ctx(), &cri.ListContainerStatsRequest{
		Filter: &cri.ContainerStatsFilter{PodSandboxId: r.pod},
	})
	if err != nil || len(stats.GetStats()) != 2 {
		k.Errorf("ListContainerStats = %v, %v, want both containers", stats, err)
	}
}

func snapshotOnFullDisk(k *kubelet, handler, limit string) {
	c, dir := k.counting(handler), k.snapshotDir()
	k.ok("mount tmpfs", unix.Mount("tmpfs", dir, "tmpfs", 0, limit+",mode=0700"))
	k.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	k.refused("CheckpointPod", c.checkpoint(dir), "no space", codes.ResourceExhausted)
	c.runs()
	k.isEmpty(dir)
}

// isEmpty waits until the directory is empty.
func (k *kubelet) isEmpty(dir string) {
	k.Helper()
	k.eventually("the directory is empty", func() bool {
		files, err := os.ReadDir(dir)
		return err == nil && len(files) == 0
	})
}

func snapshotPastDeadline(k *kubelet, handler string) {
	c, dir := k.counting(handler), k.snapshotDir()
	ctx, cancel := context.WithTimeout(k.ctx(), 30*time.Millisecond)
	defer cancel()
	_, err := k.Runtime.CheckpointPod(ctx,
		&cri.CheckpointPodRequest{PodSandboxId: c.pod, OutputPath: dir, ContainerIds: c.containers})
	k.refused("CheckpointPod", err, "", codes.DeadlineExceeded)
	c.runs()
	k.isEmpty(dir)
	k.ok("CheckpointPod after one that timed out", c.checkpoint(dir))
}

// snapshotWithoutPodd: the pod runs on when podd is killed while the pod is saved.
func snapshotWithoutPodd(k *kubelet, handler string) {
	c := k.counting(handler)
	k.exec(c.containers[0], "dd if=/dev/urandom of=/big bs=1M count=100")
	for _, wait := range []time.Duration{20, 60, 120, 250} {
		dir := k.snapshotDir()
		done := make(chan error, 1)
		go func() { done <- c.checkpoint(dir) }()
		time.Sleep(wait * time.Millisecond)
		k.ok("kill podd", k.Kill9())
		c.runs()
		<-done
		k.ok("start podd", k.Start(k.ctx()))
		c.runs()
		k.nothingStaged()
	}
	dir := k.snapshotDir()
	k.ok("CheckpointPod", c.checkpoint(dir))
	r := c.restore(dir)
	r.startAll()
	r.runs()
}

// nothingStaged: no checkpoint that has ended has left a mark or images on podd's own disk.
func (k *kubelet) nothingStaged() {
	k.Helper()
	for _, pattern := range []string{"*/containers/*/dump*", ".tmp-dump-*"} {
		k.eventually("nothing is left as "+pattern+" of a checkpoint that has ended", func() bool {
			left, err := filepath.Glob(k.Path("root", "pods", pattern))
			return err == nil && len(left) == 0
		})
	}
}

// snapshotWithoutRunsc: the pod also runs on when the program is killed that has asked its sandbox for the images.
func snapshotWithoutRunsc(k *kubelet) {
	c, dir := k.counting("gvisor"), k.snapshotDir()
	k.exec(c.containers[0], "dd if=/dev/urandom of=/big bs=1M count=100")
	saved := make(chan error, 1)
	go func() { saved <- c.checkpoint(dir) }()
	k.eventually("runsc is killed", func() bool {
		commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range commands {
			command, _ := os.ReadFile(path)
			if args := string(command); strings.Contains(args, "\x00checkpoint\x00") && strings.Contains(args, c.pod) {
				pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
				return unix.Kill(pid, unix.SIGKILL) == nil
			}
		}
		return len(saved) > 0 // it was quicker
	})
	if err := <-saved; err == nil {
		k.Skip("the checkpoint was complete before runsc could be killed")
	}
	c.runs()
	k.isEmpty(dir)
	k.ok("CheckpointPod after one that was killed", c.checkpoint(dir))
	c.runs()
}

func refusedSnapshots(k *kubelet) {
	c, dir := k.counting("gvisor"), k.snapshotDir()
	otherConfig := k.podConfig()
	other := k.runPod(otherConfig, "crun")
	foreign, _ := k.runIn(other, otherConfig, []string{"sleep", "1000"})
	for _, tt := range []struct {
		name   string
		change func(r *cri.CheckpointPodRequest)
		words  string
		code   codes.Code
	}{
		{"no such pod", func(r *cri.CheckpointPodRequest) { r.PodSandboxId = "0000" }, "0000", codes.NotFound},
		{"no such container", func(r *cri.CheckpointPodRequest) { r.ContainerIds = []string{"0000"} }, "0000",
			codes.NotFound},
		{"no containers", func(r *cri.CheckpointPodRequest) { r.ContainerIds = nil }, "container_ids",
			codes.InvalidArgument},
		{"a container twice", func(r *cri.CheckpointPodRequest) {
			r.ContainerIds = []string{c.containers[0], c.containers[1], c.containers[0]}
		}, "twice", codes.InvalidArgument},
		{"one of two containers", func(r *cri.CheckpointPodRequest) { r.ContainerIds = c.containers[:1] }, "together",
			codes.FailedPrecondition},
		{"container of another pod", func(r *cri.CheckpointPodRequest) { r.ContainerIds = []string{foreign} },
			"another pod", codes.FailedPrecondition},
		{"pod of crun", func(r *cri.CheckpointPodRequest) { r.PodSandboxId, r.ContainerIds = other, []string{foreign} },
			"needs runc", codes.Unimplemented},
		{"options", func(r *cri.CheckpointPodRequest) { r.Options = map[string]string{"a": "b"} }, "options",
			codes.InvalidArgument},
		{"relative path", func(r *cri.CheckpointPodRequest) { r.OutputPath = "x" }, "output_path", codes.InvalidArgument},
		{"no such directory", func(r *cri.CheckpointPodRequest) { r.OutputPath = dir + "/x" }, "existing directory",
			codes.InvalidArgument},
	} {
		k.refused(tt.name, c.checkpoint(dir, tt.change), tt.words, tt.code)
	}
	_, err := k.Runtime.CheckpointPod(context.WithoutCancel(k.ctx()),
		&cri.CheckpointPodRequest{PodSandboxId: c.pod, OutputPath: dir, ContainerIds: c.containers})
	k.refused("without a deadline", err, "deadline", codes.InvalidArgument)
	k.exec(c.containers[0], "echo x > /dev/shm/file")
	k.refused("with files in /dev/shm", c.checkpoint(dir), "/dev/shm", codes.FailedPrecondition)
	k.exec(c.containers[0], "rm /dev/shm/file")
	k.stopContainer(c.containers[1], 1)
	k.refused("with a stopped container", c.checkpoint(dir), "exited", codes.FailedPrecondition)
	k.isEmpty(dir)
	k.ok("CheckpointPod of the container that runs", c.checkpoint(dir, func(r *cri.CheckpointPodRequest) {
		r.ContainerIds = c.containers[:1]
	}))
}

func refusedRestores(k *kubelet) {
	c, dir := k.counting("gvisor"), k.snapshotDir()
	k.ok("CheckpointPod", c.checkpoint(dir))
	pods := len(k.pods(nil))
	for _, tt := range []struct {
		name   string
		change func(r *cri.RestorePodRequest)
		words  string
		code   codes.Code
	}{
		{"other command", func(r *cri.RestorePodRequest) { r.ContainerConfigs[1].Command = []string{"true"} },
			"in command", codes.FailedPrecondition},
		{"other image", func(r *cri.RestorePodRequest) { r.ContainerConfigs[0].Image.Image = nginx }, "image",
			codes.FailedPrecondition},
		{"no such image", func(r *cri.RestorePodRequest) { r.ContainerConfigs[0].Image.Image = "example.com/none:1" },
			"example.com/none", codes.NotFound},
		{"a container less", func(r *cri.RestorePodRequest) { r.ContainerConfigs = r.ContainerConfigs[:1] },
			"no config in the request", codes.FailedPrecondition},
		{"name twice", func(r *cri.RestorePodRequest) { r.ContainerConfigs[1] = r.ContainerConfigs[0] },
			"another container", codes.InvalidArgument},
		{"no containers", func(r *cri.RestorePodRequest) { r.ContainerConfigs = nil }, "container_configs",
			codes.InvalidArgument},
		{"handler crun", func(r *cri.RestorePodRequest) { r.RuntimeHandler = "crun" }, "needs runc", codes.Unimplemented},
		{"handler runc", func(r *cri.RestorePodRequest) { r.RuntimeHandler = "runc" }, `kind "gvisor"`,
			codes.FailedPrecondition},
		{"default handler", func(r *cri.RestorePodRequest) { r.RuntimeHandler = "" }, `kind "gvisor"`,
			codes.FailedPrecondition},
		{"shim of gVisor", func(r *cri.RestorePodRequest) { r.RuntimeHandler = "gvisor-shim" }, "type oci",
			codes.Unimplemented},
		{"unknown handler", func(r *cri.RestorePodRequest) { r.RuntimeHandler = "none" }, "none", codes.InvalidArgument},
		{"options", func(r *cri.RestorePodRequest) { r.Options = map[string]string{"a": "b"} }, "options",
			codes.InvalidArgument},
		{"no checkpoint", func(r *cri.RestorePodRequest) { r.CheckpointPath = k.snapshotDir() }, "manifest.json",
			codes.InvalidArgument},
		{"sysctls", func(r *cri.RestorePodRequest) {
			r.Config.Linux.Sysctls = map[string]string{"net.ipv4.ip_forward": "1"}
		}, "sysctls", codes.FailedPrecondition},
	} {
		k.have(nginx)
		r := c.restoreRequest(dir)
		tt.change(r)
		_, err := k.Runtime.RestorePod(k.ctx(), r)
		k.refused(tt.name, err, tt.words, tt.code)
	}
	manifest := filepath.Join(dir, "manifest.json")
	data, err := os.ReadFile(manifest)
	k.ok("read manifest", err)
	k.ok("change manifest", os.WriteFile(manifest, append(data, ' '), 0o600))
	_, err = k.Runtime.RestorePod(k.ctx(), c.restoreRequest(dir))
	k.refused("changed manifest", err, "seal", codes.PermissionDenied)
	k.ok("repair manifest", os.WriteFile(manifest, data, 0o600))
	k.ok("change image", os.Truncate(filepath.Join(dir, "gvisor", "pages.img"), 4096))
	_, err = k.Runtime.RestorePod(k.ctx(), c.restoreRequest(dir))
	k.refused("changed image", err, "differs from the manifest", codes.DataLoss)
	if got := len(k.pods(nil)); got != pods {
		k.Errorf("%d pods after refused restores, want %d", got, pods)
	}
	c.runs()
}

// copiesAtOnce: three pods are restored from one checkpoint at the same time. They and the saved one have different ids
// and addresses, and none sees what another writes.
func copiesAtOnce(k *kubelet, handler string) {
	c, dir := k.counting(handler), k.snapshotDir()
	k.exec(c.containers[0], "echo saved > /data")
	k.ok("CheckpointPod", c.checkpoint(dir))
	copies := make([]*counting, 3)
	var group sync.WaitGroup
	for i := range copies {
		r := c.restoreRequest(dir)
		group.Go(func() {
			response, err := k.Runtime.RestorePod(k.ctx(), r)
			if err != nil {
				k.Errorf("RestorePod: %v", err)
				return
			}
			copies[i] = &counting{
				kubelet: k, handler: handler, pod: response.PodSandboxId, podConfig: r.Config, configs: r.ContainerConfigs,
			}
			for _, container := range response.RestoredContainers {
				copies[i].containers = append(copies[i].containers, container.ContainerId)
			}
		})
	}
	group.Wait()
	if k.Failed() {
		return
	}
	addresses := map[string]bool{k.podStatus(c.pod).Network.Ip: true}
	for i, restored := range copies {
		restored.startAll()
		addresses[k.podStatus(restored.pod).Network.Ip] = true
		k.exec(restored.containers[0], fmt.Sprintf("echo %d >> /data", i))
	}
	if len(addresses) != 4 || addresses[""] {
		k.Errorf("addresses = %v, want four", addresses)
	}
	for i, restored := range copies {
		restored.runs()
		if got, want := k.exec(restored.containers[0], "cat /data"), fmt.Sprintf("saved\n%d\n", i); got != want {
			k.Errorf("file of copy %d = %q, want %q", i, got, want)
		}
		k.removePod(restored.pod)
	}
	c.runs()
	if got := k.exec(c.containers[0], "cat /data"); got != "saved\n" {
		k.Errorf("file of the saved pod = %q, want saved", got)
	}
}

// snapshotByCommand: two copies of a saved pod run next to it, each with its own address.
func snapshotByCommand(k *kubelet, handler string) {
	c, dir, logs := k.counting(handler), filepath.Join(k.snapshotDir(), "web"), k.snapshotDir()
	name := c.podConfig.Metadata.Namespace + "/" + c.podConfig.Metadata.Name
	k.runs("checkpoint", "create", name, dir)
	c.runs()
	out := k.runs("checkpoint", "restore", dir, "--name", "copy", "--handler", handler, "--logs", logs, "--copies", "2")
	ids := strings.Fields(out)
	if len(ids) != 2 {
		k.Fatalf("podd checkpoint restore printed %q, want the ids of two pods", out)
	}
	addresses := map[string]bool{k.podStatus(c.pod).Network.Ip: true}
	for _, id := range ids {
		defer k.removePod(id)
		addresses[k.podStatus(id).Network.Ip] = true
	}
	if len(addresses) != 3 || addresses[""] {
		k.Errorf("addresses = %v, want three", addresses)
	}
	for _, copied := range []string{"copy", "copy-1"} {
		k.eventually("the containers of "+copied+" print", func() bool {
			found, _ := filepath.Glob(filepath.Join(logs, "default_"+copied+"_*", "*.log"))
			for _, path := range found {
				if info, err := os.Stat(path); err != nil || info.Size() == 0 {
					return false
				}
			}
			return len(found) == 2
		})
	}
	c.runs()
	if _, errs, code := k.podd("checkpoint", "create", name, dir); code == 0 || !strings.Contains(errs, "empty") {
		k.Errorf("create in a directory with a checkpoint = %d, %q, want an error", code, errs)
	}
}
