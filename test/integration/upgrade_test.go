package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
	"github.com/podd-project/podd/test/sample"
)

// The old daemon is that of upgradeFrom commits ago, but no older than firstCompatible, from which on compatibility
// counts: podd takes over the pods of each commit since, and all before 0.1.0 are older. UPGRADE_FROM names another
// commit.
const (
	upgradeFrom     = 100
	firstCompatible = "048359e0"
)

// TestUpgrade has a daemon of some time ago make pods, and this one take them over, and give them back again: within
// one format of the records a downgrade works too.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	dir, old := t.TempDir(), ""
	for _, handler := range sample.Some(t, "runc", "crun", "runc-shim") {
		t.Run(handler, func(t *testing.T) {
			k := startWith(t, daemon.Options{Handler: handler, Set: runcShim()})
			if old == "" {
				old = buildOld(k, dir)
			}
			k.have(busybox)
			// The new daemon pins network namespaces where the old one may never have.
			now := daemonCommand{poddBinary, []string{"--set", "network.netns_dir=/var/run/netns"}}
			before := daemonCommand{old, nil}
			t.Run("up", func(t *testing.T) { takeOver(k.sub(t), before, now) })
			t.Run("down", func(t *testing.T) { takeOver(k.sub(t), now, before) })
			if handler == "runc" {
				if sample.Takes(3, t.Name(), "20 pods") { // minutes
					t.Run("20 pods", func(t *testing.T) { keepCounting(k.sub(t), before, now) })
				}
				t.Run("checkpoint", func(t *testing.T) { saveOther(k.sub(t), before, now) })
				t.Run("restored", func(t *testing.T) { takeOverRestored(k.sub(t), now, before) })
			}
		})
	}
}

// buildOld builds podd of UPGRADE_FROM, or as it was some commits ago: the oldest tried that builds and takes this
// test's configuration, in dir. In a clone without firstCompatible it fails.
func buildOld(k *kubelet, dir string) string {
	k.Helper()
	repo, err := daemon.Repository()
	k.ok("find the repository", err)
	from := os.Getenv("UPGRADE_FROM")
	if from != "" {
		binary, err := buildCommit(k, repo, dir, from)
		k.ok("build the daemon of UPGRADE_FROM", err)
		return binary
	}
	commits := compatibleCommits(k, repo)
	for back := len(commits) - 1; ; back /= 4 {
		binary, err := buildCommit(k, repo, dir, commits[back])
		if err == nil {
			err = exec.Command(binary, "--config", k.Path("podd.toml"), "config", "dump").Run()
		}
		if err == nil {
			subject := output(k, repo, "git -c safe.directory='*' log -1 --format='%h %s' "+commits[back])
			k.Logf("the old daemon is that of %d commits ago: %s", back, subject)
			return binary
		}
		if back == 0 {
			k.Fatalf("even the last commit does not build or take this configuration: %v", err)
		}
		k.Logf("not the daemon of %d commits ago: %v", back, err)
	}
}

// compatibleCommits returns the last upgradeFrom commits since firstCompatible, the newest first.
func compatibleCommits(k *kubelet, repo string) []string {
	k.Helper()
	contains := exec.Command("git", "-c", "safe.directory=*", "merge-base", "--is-ancestor", firstCompatible, "HEAD")
	contains.Dir = repo
	list := "git -c safe.directory='*' rev-list --first-parent --max-count "
	if err := contains.Run(); err != nil {
		k.Fatalf("this clone lacks commit %s, the oldest that has to be compatible: %v", firstCompatible, err)
	}
	return strings.Fields(output(k, repo, list+itoa(upgradeFrom+1)+" "+firstCompatible+"^..HEAD"))
}

// buildCommit fails for a commit in the middle of a change.
func buildCommit(k *kubelet, repo, dir, commit string) (string, error) {
	k.Helper()
	src, err := os.MkdirTemp(dir, "")
	k.ok("make the directory of the source", err)
	output(k, repo, "git -c safe.directory='*' archive "+commit+" | tar -x -C "+src)
	output(k, src, "make -s embedded")
	binary := filepath.Join(src, "podd-old")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false",
		"-tags", "containers_image_openpgp,nri_no_wasm,grpcnotrace", "-ldflags",
		"-X main.version=v0.0.0-old", "-o", binary, "./cmd/podd")
	build.Dir, build.Env = src, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", commit, err, out)
	}
	return binary, nil
}

// output runs a shell command that must succeed.
func output(k *kubelet, dir, command string) string {
	k.Helper()
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		k.Fatalf("%s: %v\n%s", command, err, out)
	}
	return strings.TrimSpace(string(out))
}

// daemonCommand is a daemon's program and its arguments.
type daemonCommand struct {
	binary string
	args   []string
}

// takeOver has one daemon make pods in every state and another one go on with them.
func takeOver(k *kubelet, from, to daemonCommand) {
	k.Use(from.binary, from.args...)
	k.ok("start the first daemon", k.Restart(k.ctx(), k.Stop))
	l, shared := k.newLife(), k.newLife()
	shared.pod.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
	shared.container.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
	l.upTo(3)
	shared.upTo(3)
	created := k.create(l.podID, k.containerConfig([]string{"sleep", "1000"}), l.pod)
	ended, _ := k.runIn(l.podID, l.pod, []string{"sh", "-c", "exit 9"})
	k.exited(ended)
	wait := "while [ ! -e /dev/shm/go ]; do sleep 0.05; done; exit 11"
	while, _ := k.runIn(l.podID, l.pod, []string{"sh", "-c", wait})
	pid := initPid(k, l.containerID)

	k.ok("kill the first daemon", k.Kill9())
	writeFile(k, k.shm(l.podID)+"/go", "")
	k.Use(to.binary, to.args...)
	k.ok("start the second daemon", k.Start(k.ctx()))

	for _, l := range []*life{l, shared} {
		if s := k.podStatus(l.podID); s.State != cri.PodSandboxState_SANDBOX_READY || s.Network.GetIp() != l.ip {
			k.Errorf("pod is %v with address %s, want SANDBOX_READY with %s", s.State, s.Network.GetIp(), l.ip)
		}
		k.ok("exec", l.exec(k.ctx()))
	}
	if now := initPid(k, l.containerID); now != pid {
		k.Errorf("pid of the container = %d, want %d", now, pid)
	}
	if s := k.container(ended); s.ExitCode != 9 {
		k.Errorf("exit code of the container that ended before = %d, want 9: %v", s.ExitCode, s)
	}
	if s := k.exited(while); s.ExitCode != 11 {
		k.Errorf("exit code of the container that ended between the daemons = %d, want 11: %v", s.ExitCode, s)
	}
	k.startContainer(created)
	for _, v := range verbs[4:] {
		k.ok(v.name, v.do(l, k.ctx()))
	}
	k.Use(poddBinary)
	k.ok("go on with this daemon", k.Restart(k.ctx(), k.Stop))
}

// replace kills the daemon and starts another one.
func (k *kubelet) replace(by daemonCommand) {
	k.Helper()
	k.ok("kill the daemon", k.Kill9())
	k.Use(by.binary, by.args...)
	k.ok("start the other daemon", k.Start(k.ctx()))
}

// saveOther: a pod of another podd is saved. It runs on, and can be removed.
func saveOther(k *kubelet, from, to daemonCommand) {
	k.replace(from)
	c := k.one("touch /tmp/ready; " + countForever)
	k.replace(to)
	dir := k.snapshotDir()
	k.ok("CheckpointPod", c.checkpoint(dir))
	r := c.restore(dir)
	r.startAll()
	r.runs()
	c.runs()
	k.removePod(c.pod)
	k.replace(daemonCommand{binary: poddBinary})
}

// takeOverRestored: restored pods outlive a downgrade. The older podd goes on with those that run, and starts those
// that wait, as the next podd does. It removes both.
func takeOverRestored(k *kubelet, from, to daemonCommand) {
	k.replace(from)
	c, dir := k.saved("touch /tmp/ready; " + countForever)
	runs, waits, other := c.restore(dir), c.restore(dir), c.restore(dir)
	runs.startAll()
	runs.runs()
	k.replace(to)
	for _, p := range []*counting{runs, waits, other} {
		if s := k.podStatus(p.pod); s.State != cri.PodSandboxState_SANDBOX_READY {
			k.Errorf("restored pod is %v, want SANDBOX_READY", s.State)
		}
	}
	runs.goesOn()
	older := k.one("touch /tmp/ready; " + countForever)
	waits.startAll()
	waits.goesOn()
	for _, p := range []*counting{runs, waits, older} {
		k.removePod(p.pod)
	}
	k.replace(daemonCommand{binary: poddBinary})
	other.startAll()
	other.goesOn()
	c.goesOn()
}

// goesOn fails the test unless the containers count on, and podd knows that they run.
func (c *counting) goesOn() {
	c.Helper()
	for _, id := range c.containers {
		if s := c.container(id); s.State != cri.ContainerState_CONTAINER_RUNNING {
			c.Errorf("container is %v, want CONTAINER_RUNNING", s.State)
		}
	}
	c.runs()
}

// initPid returns the pid in the container's record: state.json of the runc driver, podd.json of the shim driver.
func initPid(k *kubelet, id string) int {
	k.Helper()
	var record containerState
	data, err := os.ReadFile(k.Path("run", "containers", id, "podd.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return stateOf(k, k, id).Init.Pid
	}
	k.ok("read the record of the shim driver", errors.Join(err, json.Unmarshal(data, &record)))
	return record.Init.Pid
}
