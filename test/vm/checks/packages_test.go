package checks

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Packages of the payload; the older one is installed when the machine starts.
const (
	newPackage = "/payload/new.deb"
	oldPackage = "/payload/old.deb"
)

// packagedPods is the number of pods that run across an upgrade and a downgrade.
const packagedPods = 20

// packagedPod is a pod whose container writes numbered lines.
type packagedPod struct {
	config         *cri.PodSandboxConfig
	pod, container string
	process        string
}

// TestPackages upgrades and downgrades podd by apt, under systemd, while pods run: every process stays, and no line of
// their logs is lost.
func TestPackages(t *testing.T) {
	if _, err := os.Stat(newPackage); err != nil {
		t.Skip("needs the packages of a release: test/vm/run.sh packages")
	}
	k := newKubelet(t)
	var pods []packagedPod
	for i := range packagedPods {
		k.runPod(func(c *cri.PodSandboxConfig) {
			c.Metadata.Name, c.Metadata.Uid = fmt.Sprintf("pod-%d", i), fmt.Sprintf("uid-%d", i)
		})
		id := k.start("i=0; while :; do i=$((i+1)); echo line $i; sleep 0.2; done")
		pods = append(pods, packagedPod{k.pod, k.podID, id, k.pid(id)})
	}
	for _, deb := range []string{newPackage, oldPackage} {
		before, version := show(t, "podd", "MainPID"), installed(t)
		install(t, deb)
		k.eventually("podd answers", func() bool {
			_, err := k.runtime.Version(k.Context(), &cri.VersionRequest{})
			return err == nil
		})
		if now := show(t, "podd", "MainPID"); now == before || now == "0" || installed(t) == version {
			t.Errorf("after the installation of %s: process %s of %s, was %s of %s", deb, now, installed(t), before, version)
		}
		for _, p := range pods {
			p.goesOn(k)
		}
	}
	for _, p := range pods {
		k.pod = p.config
		k.noLineLost()
	}
	for _, p := range pods[:len(pods)-1] { // the last one is removed at the end of the test
		_, err := k.runtime.StopPodSandbox(k.Context(), &cri.StopPodSandboxRequest{PodSandboxId: p.pod})
		k.ok("StopPodSandbox", err)
		_, err = k.runtime.RemovePodSandbox(k.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: p.pod})
		k.ok("RemovePodSandbox", err)
	}
}

// goesOn fails the test unless the container is the same process, and still writes.
func (p packagedPod) goesOn(k *kubelet) {
	k.Helper()
	k.pod = p.config
	if st := k.status(p.container); st.State != cri.ContainerState_CONTAINER_RUNNING || k.pid(p.container) != p.process {
		k.Errorf("%s: %v, process %s, want it running as process %s", p.config.Metadata.Name, st.State,
			k.pid(p.container), p.process)
	}
	size := len(k.log())
	k.eventually("the container writes", func() bool { return len(k.log()) > size })
}

// installed returns the version of the package.
func installed(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("dpkg-query", "-W", "-f", "${Version}", "podd").CombinedOutput()
	if err != nil {
		t.Fatalf("dpkg-query: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// install installs a deb as an administrator does.
func install(t *testing.T, deb string) {
	t.Helper()
	cmd := exec.Command("apt-get", "-qq", "-y", "--no-install-recommends", "--allow-downgrades", "install", deb)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("install %s: %v: %s", deb, err, out)
	}
}
