package integration

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
)

// upgradeFrom is how many commits back the old daemon is, where there is so much history.
const upgradeFrom = 30

// TestUpgrade has a daemon of some time ago make pods, and this one take them over, and give them back again: within one
// format of the records a downgrade works too.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	old := buildOld(t)
	for _, handler := range soak([]string{"runc"}, []string{"runc", "crun"}) {
		t.Run(handler, func(t *testing.T) {
			k := startWith(t, daemon.Options{Handler: handler})
			k.have(busybox)
			for _, way := range []struct{ name, from, to string }{{"up", old, poddBinary}, {"down", poddBinary, old}} {
				t.Run(way.name, func(t *testing.T) { takeOver(k.sub(t), way.from, way.to) })
			}
			k.Use(poddBinary)
			k.ok("go on with this daemon", k.Restart(k.ctx(), k.Stop))
		})
	}
}

// buildOld builds podd as it was some commits ago. In a clone without history it builds this commit, and says so.
func buildOld(t *testing.T) string {
	t.Helper()
	repo, err := daemon.Repository()
	if err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) string {
		out, err := exec.Command("git", append([]string{"-C", repo, "-c", "safe.directory=*"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	commits := strings.Fields(git("rev-list", "--first-parent", "--max-count", itoa(upgradeFrom+1), "HEAD"))
	commit := commits[len(commits)-1]
	if len(commits) == 1 {
		t.Logf("this clone has no history: the old daemon is the committed state of this one, %s", commit)
	}
	t.Logf("the old daemon is that of %s", git("log", "-1", "--format=%h %s", commit))
	src := t.TempDir()
	binary := filepath.Join(src, "podd-old")
	for _, command := range []string{
		"git -c safe.directory='*' archive " + commit + " | tar -x -C " + src,
		"mkdir -p " + src + "/oci/pause/bin && cp oci/pause/bin/pause " + src + "/oci/pause/bin/",
		"cd " + src + " && CGO_ENABLED=0 go build -buildvcs=false -tags containers_image_openpgp -ldflags '-X main.version=v0.0.0-old' -o " + binary + " ./cmd/podd",
	} {
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = repo
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	return binary
}

// takeOver has one daemon make pods in every state and another one go on with them.
func takeOver(k *kubelet, from, to string) {
	k.Use(from)
	k.ok("start the first daemon", k.Restart(k.ctx(), k.Stop))
	l, shared := k.newLife(), k.newLife()
	shared.pod.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
	shared.container.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
	l.upTo(3)
	shared.upTo(3)
	created := k.create(l.podID, k.containerConfig([]string{"sleep", "1000"}), l.pod)
	ended, _ := k.runIn(l.podID, l.pod, []string{"sh", "-c", "exit 9"})
	k.exited(ended)
	while, _ := k.runIn(l.podID, l.pod, []string{"sh", "-c", "while [ ! -e /dev/shm/go ]; do sleep 0.05; done; exit 11"})
	pid := stateOf(k, k, l.containerID).Init.Pid

	k.ok("kill the first daemon", k.Kill9())
	writeFile(k, k.shm(l.podID)+"/go", "")
	k.Use(to)
	k.ok("start the second daemon", k.Start(k.ctx()))

	for _, l := range []*life{l, shared} {
		if s := k.podStatus(l.podID); s.State != cri.PodSandboxState_SANDBOX_READY || s.Network.GetIp() != l.ip {
			k.Errorf("the pod is %v with address %s, was ready with %s", s.State, s.Network.GetIp(), l.ip)
		}
		k.ok("exec", l.exec(k.ctx()))
	}
	if now := stateOf(k, k, l.containerID).Init.Pid; now != pid {
		k.Errorf("the container is process %d, was %d", now, pid)
	}
	if s := k.container(ended); s.ExitCode != 9 {
		k.Errorf("the container that ended before: %v", s)
	}
	if s := k.exited(while); s.ExitCode != 11 {
		k.Errorf("the container that ended meanwhile: %v", s)
	}
	k.startContainer(created)
	for _, v := range verbs[4:] {
		k.ok(v.name, v.do(l, k.ctx()))
	}
}
