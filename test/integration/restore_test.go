package integration

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/client-go/tools/remotecommand"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/fuse"
)

// TestRestore: a pod of runc is saved with CRIU and restored as another pod, with its processes and files.
func TestRestore(t *testing.T) {
	k := start(t)
	t.Run("round trip", func(t *testing.T) { roundTrip(k.sub(t), "runc") })
	t.Run("restored pod is saved", func(t *testing.T) { snapshotOfRestored(k.sub(t), "runc") })
	t.Run("copies at once", func(t *testing.T) { copiesAtOnce(k.sub(t), "runc") })
	if soaking() { // TestExecWaitsForDump of oci/runc is the short variant
		t.Run("exec meanwhile", func(t *testing.T) { snapshotDuringExec(k.sub(t), "runc") })
	}
	t.Run("one of two containers", func(t *testing.T) { restoreOfOne(k.sub(t)) })
	t.Run("server", func(t *testing.T) { restoreOfServer(k.sub(t)) })
	t.Run("privileges", func(t *testing.T) { restoredPrivileges(k.sub(t)) })
	t.Run("resources", func(t *testing.T) { restoredResources(k.sub(t)) })
	t.Run("volume", func(t *testing.T) { restoreWithVolume(k.sub(t)) })
	t.Run("zombie", func(t *testing.T) { restoreWithZombie(k.sub(t)) })
	t.Run("shared memory", func(t *testing.T) { restoreWithShm(k.sub(t)) })
	t.Run("terminal", func(t *testing.T) { restoreWithTerminal(k.sub(t)) })
	t.Run("not started", func(t *testing.T) { restoreWithoutStart(k.sub(t), "runc") })
	t.Run("stopped while it starts", func(t *testing.T) { stopOfRestoring(k.sub(t)) })
	t.Run("disk full", func(t *testing.T) { snapshotOnFullDisk(k.sub(t), "runc", "nr_inodes=20") })
	t.Run("deadline", func(t *testing.T) { snapshotPastDeadline(k.sub(t), "runc") })
	t.Run("podd is killed", func(t *testing.T) { snapshotWithoutPodd(k.sub(t), "runc") })
	t.Run("podd is killed while it starts", func(t *testing.T) { restoreWithoutPodd(k.sub(t)) })
	t.Run("runc is killed while it starts", func(t *testing.T) { restoreWithoutRunc(k.sub(t)) })
	t.Run("removed meanwhile", func(t *testing.T) { dumpOfRemoved(k.sub(t)) })
	t.Run("dead directory", func(t *testing.T) { dumpToDeadDirectory(k.sub(t)) })
	t.Run("dying volume", func(t *testing.T) { dumpToDyingVolume(t, k.sub(t)) })
	t.Run("refused", func(t *testing.T) { refusedDumps(k.sub(t)) })
	t.Run("obstacles", func(t *testing.T) { obstaclesOfCRIU(k.sub(t)) })
	t.Run("refused restore", func(t *testing.T) { refusedCRIURestores(k.sub(t)) })
}

// saved returns a pod of one container that runs command, and the directory it was saved in.
func (k *kubelet) saved(command string, change ...func(*cri.ContainerConfig)) (*counting, string) {
	k.Helper()
	c, dir := k.one(command, change...), k.snapshotDir()
	k.ok("CheckpointPod", c.checkpoint(dir))
	return c, dir
}

// one returns a pod of runc with one container, which has made the file /ready.
func (k *kubelet) one(command string, change ...func(*cri.ContainerConfig)) *counting {
	k.Helper()
	cfg := k.podConfig()
	c := &counting{kubelet: k, handler: "runc", pod: k.runPod(cfg, "runc"), podConfig: cfg}
	id, config := k.runIn(c.pod, cfg, []string{"sh", "-c", command}, change...)
	c.containers, c.configs = []string{id}, []*cri.ContainerConfig{config}
	k.eventually("the container is ready", func() bool {
		return strings.Contains(k.exec(id, "ls /tmp"), "ready")
	})
	return c
}

// restoreOfOne: the caller chooses the containers, and the others run on.
func restoreOfOne(k *kubelet) {
	c, dir := k.counting("runc"), k.snapshotDir()
	k.ok("CheckpointPod", c.checkpoint(dir, func(r *cri.CheckpointPodRequest) { r.ContainerIds = c.containers[1:] }))
	c.runs()
	r := c.restoreRequest(dir)
	_, err := k.Runtime.RestorePod(k.ctx(), r)
	k.refused("RestorePod of both", err, "no container", codes.FailedPrecondition)
	one := *c
	one.configs = c.configs[1:]
	restored := one.restore(dir)
	restored.startAll()
	restored.runs()
}

// restoreOfServer: a process that listens is reached at the address of the new pod.
func restoreOfServer(k *kubelet) {
	c, dir := k.saved("echo hello > /tmp/index.html; touch /tmp/ready; exec httpd -f -p 8080 -h /tmp")
	r := c.restore(dir)
	r.startAll()
	for _, pod := range []string{c.pod, r.pod} {
		client := http.Client{Timeout: 10 * time.Second}
		response, err := client.Get("http://" + k.podStatus(pod).Network.Ip + ":8080/")
		k.ok("request", err)
		data, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || string(data) != "hello\n" {
			k.Errorf("answer of the server = %q, %v, want hello", data, err)
		}
	}
	c.noLocks()
	r.noLocks()
}

// restoredPrivileges: the processes have the credentials that they had.
func restoredPrivileges(k *kubelet) {
	user := int64(1000)
	if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0); err != nil || has == 0 {
		user = 0 // without the capability CRIU cannot read the limits of processes of other users
	}
	c, dir := k.saved("touch /tmp/ready; while true; do sleep 0.1; done", func(c *cri.ContainerConfig) {
		c.Linux.SecurityContext = &cri.LinuxContainerSecurityContext{
			RunAsUser: &cri.Int64Value{Value: user}, RunAsGroup: &cri.Int64Value{Value: user}, NoNewPrivs: true,
			SupplementalGroups: []int64{3000}, Seccomp: &cri.SecurityProfile{},
			Capabilities: &cri.Capability{DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"CHOWN"}},
		}
	})
	r := c.restore(dir)
	r.startAll()
	const lines = "grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp):' /proc/1/status"
	if before, after := k.exec(c.containers[0], lines), k.exec(r.containers[0], lines); before != after ||
		!strings.Contains(after, "3000") || !strings.Contains(after, "Seccomp:\t2") {
		k.Errorf("credentials after the restore:\n%swant those before:\n%s", after, before)
	}
}

// restoredResources: all processes have the oom_score_adj of the new pod, whether the saved one had any or none.
func restoredResources(k *kubelet) {
	for _, adj := range [][]int64{{900, 0}, {0, 900}} {
		c, dir := k.saved("sleep 10000 & touch /tmp/ready; exec sleep 10000", func(c *cri.ContainerConfig) {
			c.Linux.Resources = &cri.LinuxContainerResources{OomScoreAdj: adj[0]}
		})
		c.configs[0].Linux.Resources.OomScoreAdj = adj[1]
		r := c.restore(dir)
		r.startAll()
		want := strings.Repeat(fmt.Sprintln(adj[1]), 2)
		if got := k.exec(r.containers[0], "for p in $(pidof sleep); do cat /proc/$p/oom_score_adj; done"); got != want {
			k.Errorf("oom_score_adj of the restored processes = %q, want %q", got, want)
		}
		k.removePod(c.pod)
		k.removePod(r.pod)
	}
}

// restoreWithVolume: an open file of a volume goes on in the volume of the new pod, and none of it is in a layer.
func restoreWithVolume(k *kubelet) {
	volume := k.snapshotDir()
	mount := func(c *cri.ContainerConfig) {
		c.Mounts = append(c.Mounts, &cri.Mount{ContainerPath: "/data", HostPath: volume})
	}
	c, dir := k.saved("touch /tmp/ready; while true; do echo line >&3; sleep 0.05; done 3>>/data/file", mount)
	k.stopContainer(c.containers[0], 0)
	r := c.restore(dir)
	r.startAll()
	size := func() int64 {
		info, err := os.Stat(volume + "/file")
		k.ok("file of the volume", err)
		return info.Size()
	}
	before := size()
	k.eventually("the restored process writes", func() bool { return size() > before })
	k.removePod(r.pod)
	if size() <= before {
		k.Error("the removal of the restored pod changed the volume")
	}
}

// restoreWithZombie: a process that has ended, and that its parent has not waited for, is in the restored pod, too.
func restoreWithZombie(k *kubelet) {
	c, dir := k.one("touch /tmp/ready; sleep 0.1 & exec sleep 10000"), k.snapshotDir()
	zombie := func(c *counting) bool {
		return strings.Contains(k.exec(c.containers[0], "cat /proc/[0-9]*/stat"), "(sleep) Z ")
	}
	k.eventually("a process has ended", func() bool { return zombie(c) })
	k.ok("CheckpointPod", c.checkpoint(dir))
	r := c.restore(dir)
	r.startAll()
	if !zombie(r) {
		k.Error("the restored container has no zombie, want one")
	}
	r.noLocks()
}

// restoreWithShm: files in /dev/shm of the pod, of which one is open, are in that of the restored one, which has the
// same owner and mode.
func restoreWithShm(k *kubelet) {
	c, dir := k.saved(`mkdir -m 750 /dev/shm/dir; echo kept > /dev/shm/dir/file; chown 1000:1001 /dev/shm/dir/file
		chown 0:1002 /dev/shm; chmod 775 /dev/shm
		exec 3>>/dev/shm/open; touch /tmp/ready; while true; do echo x >&3; sleep 0.05; done`)
	k.exec(c.containers[0], "rm -r /dev/shm/dir") // it is another directory
	r := c.restore(dir)
	r.startAll()
	id := r.containers[0]
	const list = "cat /dev/shm/dir/file; stat -c '%a %u %g' /dev/shm /dev/shm/dir /dev/shm/dir/file"
	if got, want := k.exec(id, list), "kept\n775 0 1002\n750 0 0\n644 1000 1001\n"; got != want {
		k.Errorf("files in the restored /dev/shm = %q, want %q", got, want)
	}
	size := func() string { return k.exec(id, "wc -c < /dev/shm/open") }
	before := size()
	k.eventually("the open file grows", func() bool { return size() != before })
}

// restoreWithTerminal: the restored container has a terminal of its own, which its log shows and a client types on.
func restoreWithTerminal(k *kubelet) {
	c, dir := k.saved("touch /tmp/ready; while read x; do echo got $x; tty; done", func(c *cri.ContainerConfig) {
		c.Tty, c.Stdin = true, true
	})
	r := c.restore(dir)
	r.startAll()
	for _, p := range []*counting{c, r} {
		in, user := io.Pipe()
		var out screen
		done := make(chan error, 1)
		at, err := k.Runtime.Attach(k.ctx(),
			&cri.AttachRequest{ContainerId: p.containers[0], Stdin: true, Stdout: true, Tty: true})
		k.ok("Attach", err)
		go func() { done <- k.streamTo(0, at.Url, remotecommand.StreamOptions{Stdin: in, Stdout: &out, Tty: true}) }()
		k.typeUntil(user, "hello\n", &out, "/dev/pts/0")
		k.waitLog(p.podConfig, p.configs[0], "got hello")
		k.stopContainer(p.containers[0], 0)
		<-done
		user.Close()
	}
}

// startLater starts the container, and returns where its error will be.
func (k *kubelet) startLater(id string) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := k.Runtime.StartContainer(k.ctx(), &cri.StartContainerRequest{ContainerId: id})
		done <- err
	}()
	return done
}

// keeper makes a container with a volume that has a file, and a few seconds of work for CRIU.
func (k *kubelet) keeper() (c *counting, dir, file string) {
	k.Helper()
	volume := k.snapshotDir()
	file = filepath.Join(volume, "kept")
	k.ok("write file", os.WriteFile(file, []byte("kept"), 0o600))
	c, dir = k.saved("head -c 100000000 /dev/zero | tail -c 100000000 > /dev/null; touch /tmp/ready; "+countForever,
		func(c *cri.ContainerConfig) {
			c.Mounts = append(c.Mounts, &cri.Mount{ContainerPath: "/data", HostPath: volume})
		})
	return c, dir, file
}

// stopOfRestoring: a stop ends the restore of a container that is being started.
func stopOfRestoring(k *kubelet) {
	c, dir, _ := k.keeper()
	for _, wait := range []time.Duration{0, 30, 80, 150, 300} {
		r := c.restore(dir)
		done := k.startLater(r.containers[0])
		time.Sleep(wait * time.Millisecond)
		began := time.Now()
		k.stopContainer(r.containers[0], 1)
		if took := time.Since(began); took > 5*time.Second {
			k.Errorf("stop after %v ms took %v, want it not to wait for the restore", int(wait), took)
		}
		k.exited(r.containers[0])
		<-done
		k.removePod(r.pod)
	}
}

// restoreWithoutPodd: a podd that is killed while it restores leaves a container that runs or has exited, and nothing
// on the machine that the removal of the pod does not remove. The volume is as it was.
func restoreWithoutPodd(k *kubelet) {
	c, dir, file := k.keeper()
	states := map[cri.ContainerState]int{}
	for _, wait := range []time.Duration{0, 20, 50, 80, 120, 160, 220, 300} {
		r := c.restore(dir)
		done := k.startLater(r.containers[0])
		time.Sleep(wait * time.Millisecond)
		k.ok("kill podd", k.Kill9())
		<-done
		k.ok("start podd", k.Start(k.ctx()))
		err := <-k.startLater(r.containers[0]) // waits until podd knows its state
		s := k.container(r.containers[0])
		k.Logf("killed after %v ms: %v", int(wait), s.State)
		if states[s.State]++; s.State == cri.ContainerState_CONTAINER_RUNNING {
			r.runs()
		} else if s.State != cri.ContainerState_CONTAINER_EXITED || err == nil {
			k.Errorf("container is %v, its start %v, want it to run, or to have exited", s.State, err)
		}
		k.removePod(r.pod)
		kept(k, file)
	}
	k.Logf("states after the restart: %v", states)
	if states[cri.ContainerState_CONTAINER_EXITED] > 0 {
		k.Errorf("states after the restart = %v, want all running", states)
	}
}

func kept(k *kubelet, file string) {
	k.Helper()
	if data, err := os.ReadFile(file); err != nil || string(data) != "kept" {
		k.Fatalf("file of the volume = %q, %v, want it kept", data, err)
	}
}

// restorersOf returns the runtimes and CRIUs that restore a container.
func restorersOf(container string) (pids []int) {
	return processesWith("\x00restore\x00", container)
}

// restoreWithoutRunc: when runc and CRIU are killed the start fails, and nothing is left in the pod or on the machine.
func restoreWithoutRunc(k *kubelet) {
	c, dir, file := k.keeper()
	for _, wait := range []time.Duration{0, 20, 50, 100} {
		r := c.restore(dir)
		done := k.startLater(r.containers[0])
		killed := false
		k.eventually("runc is killed", func() bool {
			for _, pid := range restorersOf(r.containers[0]) {
				time.Sleep(wait * time.Millisecond)
				killed = unix.Kill(pid, unix.SIGKILL) == nil || killed
			}
			return killed || len(done) > 0
		})
		if err := <-done; err == nil {
			r.runs() // it was too late
		} else if s := k.exited(r.containers[0]); s.Reason != "StartError" {
			k.Errorf("reason = %q after %v, want StartError", s.Reason, err)
		}
		r.noLocks()
		k.removePod(r.pod)
		kept(k, file)
	}
	c.runs()
}

// dumpOfRemoved: a pod can be removed while it is saved.
func dumpOfRemoved(k *kubelet) {
	c, dir := k.counting("runc"), k.snapshotDir()
	saved := make(chan error, 1)
	go func() { saved <- c.checkpoint(dir) }()
	k.eventually("CRIU runs", func() bool { return len(criuOf(c.containers[0])) > 0 || len(saved) > 0 })
	k.removePod(c.pod)
	if err := <-saved; err != nil { // it may have been quicker
		k.isEmpty(dir)
	}
}

// dumpToDeadDirectory: a directory whose server is dead fails the calls that name it at their deadlines. The containers
// run on, and can be saved elsewhere meanwhile.
func dumpToDeadDirectory(k *kubelet) {
	c := k.counting("runc")
	dead := k.Path("volumes", "dead")
	fuse.Mount(k, dead).Die()
	for name, call := range map[string]func(ctx context.Context) error{
		"CheckpointContainer": func(ctx context.Context) error {
			_, err := k.Runtime.CheckpointContainer(ctx, &cri.CheckpointContainerRequest{
				ContainerId: c.containers[0], Location: dead + "/archive.tar",
			})
			return err
		},
		"CheckpointPod": func(ctx context.Context) error {
			_, err := k.Runtime.CheckpointPod(ctx,
				&cri.CheckpointPodRequest{PodSandboxId: c.pod, OutputPath: dead, ContainerIds: c.containers})
			return err
		},
		"RestorePod": func(ctx context.Context) error {
			_, err := k.Runtime.RestorePod(ctx, c.restoreRequest(dead))
			return err
		},
	} {
		for range 2 { // the second time podd knows it
			ctx, cancel := context.WithTimeout(k.ctx(), 300*time.Millisecond)
			if err := call(ctx); err == nil {
				k.Errorf("%s = nil, want an error", name)
			}
			cancel()
		}
	}
	k.ok("CheckpointPod elsewhere", c.checkpoint(k.snapshotDir()))
	k.stopContainer(c.containers[0], 0)
	k.removePod(c.pod)
}

func refusedDumps(k *kubelet) {
	dir := k.snapshotDir()
	for words, change := range map[string]func(*cri.PodSandboxConfig, *cri.ContainerConfig){
		"a PID namespace": func(p *cri.PodSandboxConfig, c *cri.ContainerConfig) {
			p.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
			c.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{Pid: cri.NamespaceMode_POD}
		},
		"network of the node": func(p *cri.PodSandboxConfig, _ *cri.ContainerConfig) {
			p.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_NODE
			p.Hostname = ""
		},
		"IPC namespace": func(p *cri.PodSandboxConfig, _ *cri.ContainerConfig) {
			p.Linux.SecurityContext.NamespaceOptions.Ipc = cri.NamespaceMode_NODE
		},
	} {
		config := k.containerConfig([]string{"sleep", "1000"})
		cfg := k.podConfig(func(p *cri.PodSandboxConfig) { change(p, config) })
		pod := k.runPod(cfg, "runc")
		id := k.create(pod, config, cfg)
		k.startContainer(id)
		c := &counting{kubelet: k, pod: pod, podConfig: cfg, containers: []string{id}}
		k.refused(words, c.checkpoint(dir), words, codes.FailedPrecondition)
		k.obstructed(pod, words)
		k.removePod(pod)
	}
	c := k.counting("runc")
	k.exec(c.containers[0], "mkfifo /dev/shm/fifo")
	k.refused("with a FIFO in /dev/shm", c.checkpoint(dir), "/dev/shm", codes.FailedPrecondition)
	k.obstructed(c.pod, "/dev/shm")
	k.exec(c.containers[0], "rm /dev/shm/fifo")
	if out, _, code := k.podd("status", c.pod[:13]); code != 0 || strings.Contains(out, "no checkpoint") {
		k.Errorf("podd status = %d, %s, want no obstacle", code, out)
	}
	ipc := k.Path("run", "pods", c.pod, "ipc")
	out, err := exec.Command("nsenter", "--ipc="+ipc, "ipcmk", "-M", "4096").CombinedOutput()
	if err != nil {
		k.Fatalf("ipcmk: %v: %s", err, out)
	}
	k.obstructed(c.pod, "System V")
	k.refused("with shared memory", c.checkpoint(dir), "System V", codes.FailedPrecondition)
	c.runs()
	k.isEmpty(dir)
}

// obstaclesOfCRIU: what CRIU cannot save fails the checkpoint, and `podd status` names it before.
func obstaclesOfCRIU(k *kubelet) {
	volume := k.snapshotDir()
	listener, err := net.Listen("unix", volume+"/s")
	k.ok("listen", err)
	defer listener.Close()
	go func() {
		if c, err := listener.Accept(); err == nil {
			defer c.Close()
			_, _ = io.Copy(io.Discard, c)
		}
	}()
	tools := func(c *cri.ContainerConfig) { // the node's
		c.Mounts = append(c.Mounts, &cri.Mount{ContainerPath: "/data", HostPath: volume})
		c.Mounts = append(c.Mounts, &cri.Mount{ContainerPath: "/tools", HostPath: "/usr", Readonly: true})
	}
	const run = "touch /tmp/ready; L=/tools/lib/x86_64-linux-gnu; " +
		"exec $L/ld-linux-x86-64.so.2 --library-path $L /tools/bin/"
	for words, program := range map[string]string{
		"inotify":     `perl -e '$d = "/tmp"; syscall(254, syscall(253), $d, 256) < 0 and die; sleep 1000'`, // add, init
		"unix socket": `perl -e 'socket(S, 1, 1, 0); connect(S, pack("Sa108", 1, "/data/s")) or die; sleep 1000'`,
	} {
		c, dir := k.one(run+program, tools), k.snapshotDir()
		k.eventually("podd status says "+words, func() bool {
			out, _, code := k.podd("status", c.pod[:13])
			return code == 0 && strings.Contains(out, words)
		})
		k.refused(words, c.checkpoint(dir), "CRIU cannot", codes.FailedPrecondition)
		k.isEmpty(dir)
		k.removePod(c.pod)
	}
}

// obstructed fails the test unless `podd status` says in these words why the pod cannot be checkpointed.
func (k *kubelet) obstructed(pod, words string) {
	k.Helper()
	if out, _, code := k.podd("status", pod[:13]); code != 0 || !strings.Contains(out, words) {
		k.Errorf("podd status = %d, %s, want %q", code, out, words)
	}
}

// reseal changes a file of a checkpoint of runc, and seals it again with the key of the node.
func (k *kubelet) reseal(dir, file string, change func([]byte) []byte) {
	k.Helper()
	path := filepath.Join(dir, "criu", file)
	data, err := os.ReadFile(path)
	k.ok("read image", err)
	data = change(data)
	k.ok("write image", os.WriteFile(path, data, 0o600))
	var m map[string]any
	manifest, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	k.ok("read manifest", err)
	k.ok("parse manifest", json.Unmarshal(manifest, &m))
	digest := sha256.Sum256(data)
	for _, f := range m["files"].([]any) {
		if f := f.(map[string]any); f["name"] == file {
			f["size"], f["sha256"] = len(data), hex.EncodeToString(digest[:])
		}
	}
	manifest, err = json.Marshal(m)
	k.ok("encode manifest", err)
	key, err := os.ReadFile(k.Path("root", "snapshot.key"))
	k.ok("read key", err)
	mac := hmac.New(sha256.New, key)
	mac.Write(manifest)
	k.ok("write manifest", os.WriteFile(filepath.Join(dir, "manifest.json"), manifest, 0o600))
	seal := hex.EncodeToString(mac.Sum(nil))
	k.ok("write seal", os.WriteFile(filepath.Join(dir, "manifest.hmac"), []byte(seal), 0o600))
}

// refusedCRIURestores: whatever somebody changes in a checkpoint is refused, capabilities even with the seal.
func refusedCRIURestores(k *kubelet) {
	c, dir := k.saved("touch /tmp/ready; while true; do sleep 0.1; done")
	pods := len(k.pods(nil))
	refused := func(what, words string, code codes.Code) {
		k.Helper()
		_, err := k.Runtime.RestorePod(k.ctx(), c.restoreRequest(dir))
		k.refused(what, err, words, code)
		if got := len(k.pods(nil)); got != pods {
			k.Errorf("%s: %d pods after the refused restore, want %d", what, got, pods)
		}
	}
	name := "container-" + c.configs[0].Metadata.Name
	core := filepath.Join(dir, "criu", name, "checkpoint", "core-1.img")
	good, err := os.ReadFile(core)
	k.ok("read image", err)
	k.ok("change image", os.WriteFile(core, append(good[:len(good)-1:len(good)-1], good[len(good)-1]^1), 0o600))
	refused("changed bytes", "differs from the manifest", codes.DataLoss)
	k.ok("restore image", os.WriteFile(core, good, 0o600))
	r := c.restoreRequest(dir)
	r.RuntimeHandler = "gvisor"
	_, err = k.Runtime.RestorePod(k.ctx(), r)
	k.refused("handler gvisor", err, `kind "criu"`, codes.FailedPrecondition)

	k.reseal(dir, name+"/checkpoint/core-1.img", func(data []byte) []byte { return grantAll(k, data) })
	refused("capabilities", "capabilities", codes.PermissionDenied)
	ctx, cancel := context.WithTimeout(k.ctx(), time.Minute)
	defer cancel()
	k.ok("forget the key", os.Rename(k.Path("root", "snapshot.key"), k.Path("root", "other.key")))
	defer os.Rename(k.Path("root", "other.key"), k.Path("root", "snapshot.key"))
	_, err = k.Runtime.RestorePod(ctx, c.restoreRequest(dir))
	k.refused("key of another node", err, "seal", codes.PermissionDenied)
}

// grantAll returns the image of a thread with all capabilities in its bounding set.
func grantAll(k *kubelet, data []byte) []byte {
	k.Helper()
	const thread, creds, bounding = 5, 10, 12 // fields of core_entry, thread_core_entry and creds_entry
	var edit func(message []byte, path []protowire.Number) []byte
	edit = func(message []byte, path []protowire.Number) (out []byte) {
		for len(message) > 0 {
			number, kind, n := protowire.ConsumeTag(message)
			size := protowire.ConsumeFieldValue(number, kind, message[n:])
			if n < 0 || size < 0 {
				k.Fatalf("cannot parse %x", message)
			}
			value := message[n : n+size]
			switch {
			case number != path[0]:
				out = append(out, message[:n+size]...)
			case number == bounding:
				out = protowire.AppendVarint(protowire.AppendTag(out, number, kind), 0xffffffff)
			default:
				inner, _ := protowire.ConsumeBytes(value)
				out = protowire.AppendBytes(protowire.AppendTag(out, number, kind), edit(inner, path[1:]))
			}
			message = message[n+size:]
		}
		return out
	}
	changed := edit(data[12:], []protowire.Number{thread, creds, bounding})
	return append(binary.LittleEndian.AppendUint32(bytes.Clone(data[:8]), uint32(len(changed))), changed...)
}
