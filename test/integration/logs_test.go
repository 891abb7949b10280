package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/podd-project/podd/test/sample"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestLogs(t *testing.T) {
	t.Parallel()
	k := start(t, runcShim()...)
	for _, c := range []struct {
		name string
		test func(*kubelet)
	}{
		{"format", logFormat},
		{"long and unfinished lines", logPartial},
		{"rotation", logRotation},
		{"while the daemon is away", logWithoutDaemon},
		{"killed while the log is reopened", logReopenKilled},
		{"a terminal", logTerminal},
		{"a prompt", logPrompt},
		{"paths that lead away", logPaths},
		{"all logs are removed", logsRemoved},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(k.sub(t)) })
	}
}

// logsRemoved: somebody has removed all logs of a full disk. A container that runs is logged again after its log was
// reopened, and the pod runs the next one, as soon as the kubelet has made the directory again.
func logsRemoved(k *kubelet) {
	for _, handler := range sample.Some(k, "runc", "runc-shim") {
		podCfg := k.podConfig()
		pod := k.runPod(podCfg, handler)
		command := []string{"sh", "-c", "while true; do echo line; sleep 0.02; done"}
		id, cfg := k.runIn(pod, podCfg, command)
		k.waitLog(podCfg, cfg, "line\n")
		k.ok("remove all logs", os.RemoveAll(podCfg.LogDirectory))
		_, err := k.Runtime.ReopenContainerLog(k.ctx(), &cri.ReopenContainerLogRequest{ContainerId: id})
		k.refused("ReopenContainerLog without a directory", err, podCfg.LogDirectory, codes.FailedPrecondition)
		k.ok("make the directories again", os.MkdirAll(filepath.Dir(filepath.Join(podCfg.LogDirectory, cfg.LogPath)), 0o755))
		_, err = k.Runtime.ReopenContainerLog(k.ctx(), &cri.ReopenContainerLogRequest{ContainerId: id})
		k.ok("ReopenContainerLog", err)
		k.waitLog(podCfg, cfg, "line\n")
		_, cfg = k.runIn(pod, podCfg, command)
		k.waitLog(podCfg, cfg, "line\n")
	}
}

func logFormat(k *kubelet) {
	pod, podCfg := k.pod()
	begin := time.Now()
	id, cfg := k.runIn(pod, podCfg, []string{"sh", "-c", "echo to out; echo to err >&2; echo; printf '  two  spaces \\n'"})
	k.exited(id)
	var got []string
	for _, l := range k.logLines(podCfg, cfg) {
		at, err := time.Parse(time.RFC3339Nano, l.time)
		if err != nil || at.Before(begin.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
			k.Errorf("time of a line = %q, %v, want RFC 3339 and within a second of the run", l.time, err)
		}
		got = append(got, l.stream+" "+l.tag+" "+l.text)
	}
	slices.Sort(got) // the two streams have no order between them
	want := []string{"stderr F to err", "stdout F ", "stdout F   two  spaces ", "stdout F to out"}
	if !slices.Equal(got, want) {
		k.Errorf("log lines = %q, want %q", got, want)
	}
}

func logPartial(k *kubelet) {
	const length = 100_000
	pod, podCfg := k.pod()
	id, cfg := k.runIn(pod, podCfg, []string{"sh", "-c", fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; echo; printf "+
		"unfinished", length)})
	k.exited(id)
	lines := k.logLines(podCfg, cfg)
	long := 0
	for _, l := range lines {
		long += strings.Count(l.text, "x")
	}
	if long != length {
		k.Errorf("bytes of the long line in the log = %d, want %d", long, length)
	}
	if len(lines) < 3 || lines[0].tag != "P" {
		k.Errorf("line of %d bytes: %d entries, first tag = %q, want 3 or more, P", length, len(lines), lines[0].tag)
	}
	if last := lines[len(lines)-1]; last.text != "unfinished" {
		k.Errorf("last line = %q (%s), want \"unfinished\"", last.text, last.tag)
	}
}

// logRotation rotates a log as the kubelet does, under every handler.
func logRotation(k *kubelet) {
	for _, handler := range sample.Some(k, "runc", "crun", "gvisor", "runc-shim", "gvisor-shim") {
		k.TB.(*testing.T).Run(handler, func(t *testing.T) { logRotationUnder(k.withT(t), handler) })
	}
}

func logRotationUnder(k *kubelet, handler string) {
	podCfg := k.podConfig()
	pod := k.runPod(podCfg, handler)
	id, cfg := k.runIn(pod, podCfg, []string{"sh", "-c", "n=0; while true; do n=$((n+1)); echo $n; sleep 0.02; done"})
	path := filepath.Join(podCfg.LogDirectory, cfg.LogPath)
	k.waitLog(podCfg, cfg, "3\n")
	k.ok("move the log away", os.Rename(path, path+".1"))
	_, err := k.Runtime.ReopenContainerLog(k.ctx(), &cri.ReopenContainerLogRequest{ContainerId: id})
	k.ok("ReopenContainerLog", err)
	k.eventually("a new log file with lines", func() bool {
		info, err := os.Stat(path)
		return err == nil && info.Size() > 0
	})
	k.stopContainer(id, 0)
	moved := &cri.ContainerConfig{LogPath: cfg.LogPath + ".1"}
	var numbers []int
	for _, l := range append(k.logLines(podCfg, moved), k.logLines(podCfg, cfg)...) {
		n, err := strconv.Atoi(l.text)
		k.ok("parse a line", err)
		numbers = append(numbers, n)
	}
	for i, n := range numbers {
		if n != i+1 {
			k.Fatalf("line %d = %d, want %d, no line lost or written twice: %v", i+1, n, i+1, numbers)
		}
	}
	_, err = k.Runtime.ReopenContainerLog(k.ctx(), &cri.ReopenContainerLogRequest{ContainerId: id})
	k.refused("reopen the log of an exited container", err, "", codes.FailedPrecondition)
}

func logWithoutDaemon(k *kubelet) {
	pod, podCfg := k.pod()
	id, cfg := k.runIn(pod, podCfg, []string{"sh", "-c", "n=0; while [ $n -lt 150 ]; do n=$((n+1)); echo $n; sleep " +
		"0.02; done"})
	k.waitLog(podCfg, cfg, "3\n")
	k.ok("kill podd", k.Kill9())
	time.Sleep(500 * time.Millisecond) // for lines that the monitor writes while no daemon runs
	k.ok("start podd", k.Start(k.ctx()))
	if st := k.exited(id); st.ExitCode != 0 {
		k.Errorf("exit code = %d, want 0", st.ExitCode)
	}
	lines := k.logLines(podCfg, cfg)
	for i, l := range lines {
		if l.text != strconv.Itoa(i+1) {
			k.Fatalf("line %d = %q, want %d", i+1, l.text, i+1)
		}
	}
	if len(lines) != 150 {
		k.Errorf("log has %d lines, want 150", len(lines))
	}
}

// logReopenKilled kills the daemon at different moments of ReopenContainerLog. The kubelet then moves the log back, and
// tries again. The container and its monitor survive, lines follow in the new file, and the numbers of all lines only
// increase: at most those that conmon wrote to a file that the kubelet replaced are missing.
func logReopenKilled(k *kubelet) {
	for _, handler := range sample.Some(k, "runc", "gvisor", "runc-shim") {
		k.TB.(*testing.T).Run(handler, func(t *testing.T) {
			k := k.withT(t)
			r := &reopened{kubelet: k, podCfg: k.podConfig()}
			pod := k.runPod(r.podCfg, handler)
			r.id, r.cfg = k.runIn(pod, r.podCfg, []string{"sh", "-c", "n=0; while :; do n=$((n+1)); echo $n; sleep 0.01; done"})
			r.path = filepath.Join(r.podCfg.LogDirectory, r.cfg.LogPath)
			k.waitLog(r.podCfg, r.cfg, "3\n")
			for i := range 4 {
				r.kill(time.Duration(i) * 400 * time.Microsecond)
			}
			r.check()
		})
	}
}

// reopened is a container whose log is reopened while podd is killed.
type reopened struct {
	*kubelet
	id     string
	podCfg *cri.PodSandboxConfig
	cfg    *cri.ContainerConfig
	path   string
	// moved are the names of the logs that were moved away.
	moved []string
}

func (r *reopened) reopen() error {
	_, err := r.Runtime.ReopenContainerLog(r.ctx(), &cri.ReopenContainerLogRequest{ContainerId: r.id})
	return err
}

// kill rotates the log, kills podd some time after the call began, starts it, and has the log rotated.
func (r *reopened) kill(after time.Duration) {
	r.Helper()
	away := fmt.Sprintf("%s.%d", r.cfg.LogPath, len(r.moved))
	r.ok("move the log away", os.Rename(r.path, filepath.Join(r.podCfg.LogDirectory, away)))
	done := make(chan error, 1)
	go func() { done <- r.reopen() }()
	time.Sleep(after)
	r.ok("kill podd", r.Kill9())
	if err := <-done; err != nil {
		r.ok("move the log back", os.Rename(filepath.Join(r.podCfg.LogDirectory, away), r.path))
	} else {
		r.moved = append(r.moved, away)
	}
	r.ok("start podd", r.Start(r.ctx()))
	if s := r.container(r.id).State; s != cri.ContainerState_CONTAINER_RUNNING {
		r.Fatalf("container is %v after podd was killed %v into ReopenContainerLog, want it running", s, after)
	}
	r.ok("ReopenContainerLog", r.reopen())
	size := func() int64 {
		info, err := os.Stat(r.path)
		r.ok("stat the log", err)
		return info.Size()
	}
	before := size()
	r.eventually("more lines in the log", func() bool { return size() > before })
}

// check ends the container and looks at all of its logs.
func (r *reopened) check() {
	r.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	r.ok("read the mounts", err)
	if strings.Contains(string(mounts), r.id+"/log.mount") {
		r.Errorf("the log of %s is mounted after ReopenContainerLog, want no mount", r.id)
	}
	r.stopContainer(r.id, 0)
	last := 0
	for _, name := range append(r.moved, r.cfg.LogPath) {
		for _, l := range r.logLines(r.podCfg, &cri.ContainerConfig{LogPath: name}) {
			n, err := strconv.Atoi(l.text)
			r.ok("parse a line", err)
			if n <= last {
				r.Fatalf("line %d of %s follows line %d, want increasing numbers", n, name, last)
			}
			last = n
		}
	}
}

func logTerminal(k *kubelet) {
	pod, podCfg := k.pod()
	id, cfg := k.runIn(pod, podCfg, []string{"sh", "-c", "tty; echo err >&2"},
		func(c *cri.ContainerConfig) { c.Tty = true })
	k.exited(id)
	if text := k.logText(podCfg, cfg); !strings.Contains(text, "/dev/") || !strings.Contains(text, "err") {
		k.Errorf("log of a container with a terminal = %q, want /dev/... and \"err\" in it", text)
	}
}

// logPrompt: what a terminal shows is in the log at once, as a part of a line: "kubectl logs -f" shows a prompt.
func logPrompt(k *kubelet) {
	for _, handler := range sample.Some(k, "runc", "gvisor-shim") {
		podCfg := k.podConfig()
		pod := k.runPod(podCfg, handler)
		_, cfg := k.runIn(pod, podCfg, []string{"sh", "-c", "printf 'name: '; sleep 10000"},
			func(c *cri.ContainerConfig) { c.Tty, c.Stdin = true, true })
		k.waitLog(podCfg, cfg, "name: ")
		if l := k.logLines(podCfg, cfg); len(l) != 1 || l[0].tag != "P" {
			k.Errorf("%s: log = %v, want one part of a line", handler, l)
		}
	}
}

func logPaths(k *kubelet) {
	pod, podCfg := k.pod()
	outside := k.Path("outside")
	k.ok("make a directory next to the logs", os.MkdirAll(outside, 0o755))
	k.ok("link to it", os.Symlink(outside, filepath.Join(podCfg.LogDirectory, "link")))
	k.ok("link to a file in it", os.Symlink(filepath.Join(outside, "file"), filepath.Join(podCfg.LogDirectory,
		"link.log")))
	for _, path := range []string{"../outside/a.log", "x/../../outside/a.log", "link/a.log", "link.log",
		outside + "/a.log", "..", "."} {
		cfg := k.containerConfig([]string{"echo", "escaped"})
		cfg.LogPath = path
		id, err := k.tryCreate(pod, cfg, podCfg)
		if err == nil {
			_, err = k.Runtime.StartContainer(k.ctx(), &cri.StartContainerRequest{ContainerId: id})
		}
		if err == nil {
			k.exited(id)
		}
		if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
			k.Fatalf("files outside the log directory with log path %q = %v, %v, want none", path, left, err)
		}
		k.refused("log path "+path, err, "log", codes.InvalidArgument)
	}
	id, cfg := k.runIn(pod, podCfg, []string{"echo", "inside"},
		func(c *cri.ContainerConfig) { c.LogPath = "some/dir/0.log" })
	k.exited(id)
	if got := k.logText(podCfg, cfg); got != "inside\n" {
		k.Errorf("log in a subdirectory = %q, want %q", got, "inside\n")
	}
}
