package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// saveFirst is CheckpointContainer of the first container.
func (c *counting) saveFirst(location string) error {
	ctx, cancel := context.WithTimeout(c.ctx(), time.Minute)
	defer cancel()
	_, err := c.Runtime.CheckpointContainer(ctx, &cri.CheckpointContainerRequest{
		ContainerId: c.containers[0], Location: location,
	})
	return err
}

// TestCheckpoint: a container of runc is saved in an archive that Debian's checkpointctl reads, and runs on.
func TestCheckpoint(t *testing.T) {
	k := start(t)
	t.Run("archive", func(t *testing.T) { archiveOfContainer(k.sub(t)) })
	t.Run("connection", func(t *testing.T) { archiveWithConnection(k.sub(t)) })
	t.Run("large", func(t *testing.T) { archiveOfLargeContainer(k.sub(t)) })
	t.Run("refused", func(t *testing.T) { refusedArchives(k.sub(t)) })
	t.Run("deadline", func(t *testing.T) { archivePastDeadline(k.sub(t)) })
	t.Run("stop meanwhile", func(t *testing.T) { archiveOfStopped(k.sub(t)) })
	t.Run("criu is killed", func(t *testing.T) { archiveWithoutCRIU(k.sub(t)) })
	t.Run("podd is killed", func(t *testing.T) { archiveWithoutPodd(k.sub(t)) })
}

func archiveOfContainer(k *kubelet) {
	c, location := k.counting("runc"), filepath.Join(k.snapshotDir(), "archive.tar")
	k.exec(c.containers[0], "echo kept > /data")
	k.ok("CheckpointContainer", c.saveFirst(location))
	c.runs()
	info, err := os.Stat(location)
	k.ok("archive", err)
	if info.Mode() != 0o600 {
		k.Errorf("mode = %v, want 600", info.Mode())
	}
	name, image := c.configs[0].Metadata.Name, c.configs[0].Image.Image
	shown := k.checkpointctl("show", location)
	for _, want := range []string{name, image, "runc", c.containers[0][:12]} {
		if !strings.Contains(shown, want) {
			k.Errorf("checkpointctl show:\n%swant %q", shown, want)
		}
	}
	tree := k.checkpointctl("inspect", "--ps-tree", "--stats", location)
	for _, want := range []string{"Process tree", "sh", "Freezing time", "Engine: containerd"} {
		if !strings.Contains(tree, want) {
			k.Errorf("checkpointctl inspect:\n%swant %q", tree, want)
		}
	}
	k.Log(tree)
	layer, err := exec.Command("sh", "-c", "tar -xOf "+location+" rootfs-diff.tar | tar -xO data").Output()
	if err != nil || string(layer) != "kept\n" {
		k.Errorf("file in the layer = %q, %v, want kept", layer, err)
	}
	k.refused("CheckpointContainer to the same file", c.saveFirst(location), "exists", codes.AlreadyExists)
}

// checkpointctl runs the program of contrib/criu.sh.
func (k *kubelet) checkpointctl(args ...string) string {
	k.Helper()
	out, err := exec.Command("../../bin/checkpointctl", args...).CombinedOutput()
	if err != nil {
		k.Errorf("checkpointctl %v: %v: %s", args, err, out)
	}
	return string(out)
}

// archiveWithConnection: a TCP connection does not keep a container from being saved, and goes on.
func archiveWithConnection(k *kubelet) {
	cfg := k.podConfig()
	c := &counting{kubelet: k, pod: k.runPod(cfg, "runc"), podConfig: cfg}
	id, config := k.runIn(c.pod, cfg, []string{"sh", "-c", `mkfifo /tmp/open; sleep 10000 >/tmp/open &
		nc -l -p 4000 </tmp/open >/tmp/received & sleep 0.5
		while sleep 0.1; do echo x; done | nc 127.0.0.1 4000 >/dev/null`})
	c.containers, c.configs = []string{id}, []*cri.ContainerConfig{config}
	received := func() int {
		n, _ := strconv.Atoi(strings.TrimSpace(k.exec(id, "cat /tmp/received 2>/dev/null | wc -c")))
		return n
	}
	k.eventually("bytes arrive", func() bool { return received() > 0 })
	k.ok("CheckpointContainer", c.saveFirst(filepath.Join(k.snapshotDir(), "archive.tar")))
	before := received()
	k.eventually("bytes arrive afterwards", func() bool { return received() > before })
	c.noLocks()
}

// noLocks fails the test if CRIU has left packet filter rules in the pod.
func (c *counting) noLocks() {
	c.Helper()
	out, err := exec.Command("nsenter", "--net="+c.Path("run", "netns", c.pod), "iptables-save").CombinedOutput()
	if err != nil || strings.Contains(string(out), "CRIU") {
		c.Errorf("rules of the pod: %v\n%s, want none of CRIU", err, out)
	}
}

// archiveOfLargeContainer also measures.
func archiveOfLargeContainer(k *kubelet) {
	c, dir := k.counting("runc"), k.snapshotDir()
	k.exec(c.containers[0], "dd if=/dev/urandom of=/big bs=1M count=50 2>/dev/null")
	began := time.Now()
	k.ok("CheckpointContainer", c.saveFirst(filepath.Join(dir, "archive.tar")))
	k.Logf("checkpoint with 50 MB in the root filesystem: %v", time.Since(began))
	c.runs()
}

func refusedArchives(k *kubelet) {
	c, dir := k.counting("runc"), k.snapshotDir()
	k.refused("no such directory", c.saveFirst(dir+"/x/archive.tar"), "directory", codes.InvalidArgument)
	k.refused("relative", c.saveFirst("archive.tar"), "location", codes.InvalidArgument)
	k.refused("directory", c.saveFirst(dir), "exists", codes.AlreadyExists)
	k.ok("make a link", os.Symlink("/etc/passwd", dir+"/link"))
	k.refused("link", c.saveFirst(dir+"/link"), "exists", codes.AlreadyExists)
	for handler, words := range map[string]string{"crun": "runc", "gvisor": "CheckpointPod", "gvisor-shim": "runc"} {
		other := k.counting(handler)
		k.refused(handler, other.saveFirst(dir+"/"+handler+".tar"), words, codes.Unimplemented)
		other.runs()
	}
	c.runs()
	k.stopContainer(c.containers[0], 1)
	k.refused("stopped", c.saveFirst(dir+"/stopped.tar"), "exited", codes.FailedPrecondition)
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		k.Errorf("files = %v, want only the link", files)
	}
}

func archivePastDeadline(k *kubelet) {
	c, dir := k.counting("runc"), k.snapshotDir()
	k.exec(c.containers[0], "dd if=/dev/urandom of=/big bs=1M count=100 2>/dev/null") // which takes longer to save
	ctx, cancel := context.WithTimeout(k.ctx(), 150*time.Millisecond)
	defer cancel()
	_, err := k.Runtime.CheckpointContainer(ctx, &cri.CheckpointContainerRequest{
		ContainerId: c.containers[0], Location: dir + "/archive.tar",
	})
	k.refused("CheckpointContainer", err, "", codes.DeadlineExceeded)
	c.runs()
	k.isEmpty(dir)
	k.ok("CheckpointContainer after one that timed out", c.saveFirst(dir+"/archive.tar"))
	c.runs()
}

// archiveOfStopped: a stop does not wait for the checkpoint.
func archiveOfStopped(k *kubelet) {
	c, dir := k.counting("runc"), k.snapshotDir()
	saved := make(chan error, 1)
	go func() { saved <- c.saveFirst(dir + "/archive.tar") }()
	k.eventually("CRIU runs", func() bool { return len(criuOf(c.containers[0])) > 0 || len(saved) > 0 })
	began := time.Now()
	k.stopContainer(c.containers[0], 10)
	if took := time.Since(began); took > 5*time.Second {
		k.Errorf("stop took %v, want it not to wait for the checkpoint", took)
	}
	if s := k.exited(c.containers[0]); s.ExitCode != 9 {
		k.Errorf("exit code = %d, want 9, of its trap", s.ExitCode)
	}
	if err := <-saved; err != nil { // it may have been quicker
		k.isEmpty(dir)
	}
}

// criuOf returns the runtimes that save a container, and their CRIUs.
func criuOf(container string) (pids []int) { return processesWith("\x00checkpoint\x00", container) }

// processesWith returns the processes whose command line has both.
func processesWith(verb, container string) (pids []int) {
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range commands {
		command, _ := os.ReadFile(path)
		if args := string(command); strings.Contains(args, verb) && strings.Contains(args, container) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// archiveWithoutCRIU: the container runs on when runc and CRIU are killed while they save it, or it has ended: CRIU has
// its processes execute code of CRIU at first, and one of 190 kills in that time ended the first process.
func archiveWithoutCRIU(k *kubelet) {
	c, dir := k.counting("runc"), k.snapshotDir()
	for _, wait := range []time.Duration{0, 50, 150} {
		saved := make(chan error, 1)
		go func() { saved <- c.saveFirst(dir + "/archive.tar") }()
		k.eventually("it is killed", func() bool {
			for _, pid := range criuOf(c.containers[0]) {
				time.Sleep(wait * time.Millisecond)
				return unix.Kill(-pid, unix.SIGKILL) == nil || len(saved) > 0 // its group, which is CRIU's, too
			}
			return len(saved) > 0
		})
		if err := <-saved; err == nil {
			k.ok("remove archive", os.Remove(dir+"/archive.tar"))
		}
		if c.endedBySignal() {
			c = k.counting("runc")
		}
		c.noLocks()
		k.isEmpty(dir)
	}
	k.ok("CheckpointContainer after those that were killed", c.saveFirst(dir+"/archive.tar"))
	c.runs()
}

// endedBySignal waits until the first container counts on, or has ended by a signal.
func (c *counting) endedBySignal() bool {
	c.Helper()
	before, st := c.count(0), (*cri.ContainerStatus)(nil)
	c.eventually("the container counts on, or has ended", func() bool {
		st = c.container(c.containers[0])
		return st.State == cri.ContainerState_CONTAINER_EXITED || c.count(0) > before
	})
	if st.State != cri.ContainerState_CONTAINER_EXITED {
		return false
	}
	if c.Logf("exit code of the container: %d", st.ExitCode); st.ExitCode <= 128 {
		c.Errorf("exit code = %d, want that of a signal", st.ExitCode)
	}
	return true
}

// archiveWithoutPodd: the container runs on when podd is killed, before the next podd starts, and nothing is left.
func archiveWithoutPodd(k *kubelet) {
	c, dir := k.counting("runc"), k.snapshotDir()
	for _, wait := range []time.Duration{20, 60, 120, 250, 400} {
		done := make(chan error, 1)
		go func() { done <- c.saveFirst(dir + "/archive.tar") }()
		time.Sleep(wait * time.Millisecond)
		k.ok("kill podd", k.Kill9())
		c.runs()
		<-done
		k.ok("start podd", k.Start(k.ctx()))
		c.runs()
		c.noLocks()
		_ = os.Remove(dir + "/archive.tar") // the last one may be complete
		k.isEmpty(dir)
		k.nothingStaged()
	}
	k.ok("CheckpointContainer", c.saveFirst(dir+"/archive.tar"))
	c.runs()
}
