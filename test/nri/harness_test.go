package nri

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
	"github.com/podd-project/podd/test/images"
	"github.com/podd-project/podd/test/leak"
)

const busybox = "registry.k8s.io/e2e-test-images/busybox:1.29-2"

func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil { // package daemon looks for podd's repository
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// node is a podd with an image, and a directory with CDI specifications.
type node struct {
	*testing.T
	*daemon.Daemon
	cdi string
}

// start starts a podd with the given keys of its configuration.
func start(t *testing.T, set ...string) *node {
	t.Helper()
	n := &node{T: t, cdi: t.TempDir()}
	var err error
	n.Daemon, err = daemon.New(daemon.Options{
		Registry: images.Serve(t), Set: append(set, `runtime.cdi_spec_dirs=["`+n.cdi+`"]`),
	})
	n.must(err)
	before, err := leak.Take(n.Leak())
	n.must(err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of podd's log:\n%s", n.LogTail(40))
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		left, err := before.Wait(context.WithoutCancel(t.Context()), n.Leak())
		if err != nil || len(left) > 0 {
			t.Errorf("left are %v, %v, want nothing", left, err)
		}
	})
	n.must(n.Start(t.Context()))
	_, err = n.Images.PullImage(t.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: busybox}})
	n.must(err)
	return n
}

// sub returns n for a subtest.
func (n *node) sub(t *testing.T) *node { return &node{t, n.Daemon, n.cdi} }

func (n *node) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

func (n *node) socket() string { return n.Path("run", "nri", "nri.sock") }

// launch runs a plugin, which is a program, until the subtest ends. The program is looked up in the directory
// NRI_PLUGINS; without it the subtest is skipped.
func (n *node) launch(program string, args ...string) {
	n.Helper()
	file := filepath.Join(os.Getenv("NRI_PLUGINS"), program)
	if _, err := os.Stat(file); os.Getenv("NRI_PLUGINS") == "" || err != nil {
		n.Skipf("the Go module proxy does not have %s: build it, and name its directory in NRI_PLUGINS", program)
	}
	log, err := os.Create(filepath.Join(n.TempDir(), "log"))
	n.must(err)
	cmd := exec.Command(file, args...)
	cmd.Stdout, cmd.Stderr = log, log
	n.must(cmd.Start())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }() // its end by a signal is an error
	n.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
		if text, err := os.ReadFile(log.Name()); n.Failed() && err == nil {
			n.Logf("what %s wrote:\n%s", program, text[max(0, len(text)-4000):])
		}
		n.awaitPlugins(0)
	})
	n.awaitPlugins(1)
}

// awaitPlugins waits until podd has so many plugins, each of which has been synchronised.
func (n *node) awaitPlugins(count int) {
	n.Helper()
	var out []byte
	for range 200 {
		out, _ = exec.Command("sh", "-c", n.Command()+" status -o json").Output() // podd may be starting
		var status struct {
			NRI struct {
				Plugins []struct {
					Call    string
					Waiting int
				}
			}
		}
		if err := json.Unmarshal(out, &status); err == nil && len(status.NRI.Plugins) == count &&
			(count == 0 || status.NRI.Plugins[0].Call == "" && status.NRI.Plugins[0].Waiting == 0) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	n.Fatalf("waited 10 s for %d plugins; podd status:\n%s", count, out)
}

// pod is a pod with one container.
type pod struct {
	config      *cri.PodSandboxConfig
	id, running string
}

// run runs a pod with a container main, until the subtest ends. The name may begin with a namespace and a slash.
func (n *node) run(name string, annotations map[string]string, resources *cri.LinuxContainerResources) pod {
	n.Helper()
	p, err := n.tryRun(name, annotations, resources)
	n.must(err)
	return p
}

func (n *node) tryRun(name string, annotations map[string]string, resources *cri.LinuxContainerResources) (pod, error) {
	n.Helper()
	namespace, name, found := strings.Cut(name, "/")
	if !found {
		namespace, name = "default", namespace
	}
	security := &cri.LinuxSandboxSecurityContext{
		NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER},
	}
	p := pod{config: &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: namespace, Uid: "uid-of-" + name},
		LogDirectory: n.Path("logs", name), Annotations: annotations,
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: path.Join(n.CgroupParent, name), SecurityContext: security},
	}}
	n.must(os.MkdirAll(p.config.LogDirectory, 0o755))
	sandbox, err := n.Runtime.RunPodSandbox(n.Context(), &cri.RunPodSandboxRequest{Config: p.config})
	if err != nil {
		return p, err
	}
	p.id = sandbox.PodSandboxId
	n.Cleanup(func() { n.remove(p) })
	created, err := n.Runtime.CreateContainer(n.Context(), &cri.CreateContainerRequest{
		PodSandboxId: p.id, SandboxConfig: p.config, Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "main"}, LogPath: "0.log", Command: []string{"sleep", "1000"},
			Image: &cri.ImageSpec{Image: busybox, UserSpecifiedImage: busybox},
			Linux: &cri.LinuxContainerConfig{
				Resources:       resources,
				SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: security.NamespaceOptions},
			},
		},
	})
	if err != nil {
		return p, err
	}
	p.running = created.ContainerId
	_, err = n.Runtime.StartContainer(n.Context(), &cri.StartContainerRequest{ContainerId: p.running})
	return p, err
}

// remove stops and removes a pod, and its cgroup as the kubelet does. One that is gone already is no error.
func (n *node) remove(p pod) {
	n.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.Context()), 30*time.Second)
	defer cancel()
	if _, err := n.Runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		n.Error(err)
	}
	if _, err := n.Runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		n.Error(err)
	}
	for _, hierarchy := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} { // version 2, and those of version 1
		groups, err := filepath.Glob(hierarchy + p.config.Linux.CgroupParent)
		n.must(err)
		for _, group := range groups {
			n.must(os.Remove(group))
		}
	}
}

// sh returns what a command prints in the container.
func (n *node) sh(p pod, command string) string {
	n.Helper()
	reply, err := n.Runtime.ExecSync(n.Context(), &cri.ExecSyncRequest{
		ContainerId: p.running, Cmd: []string{"sh", "-c", command}, Timeout: 20,
	})
	n.must(err)
	if reply.ExitCode != 0 {
		n.Errorf("%s: exit code %d: %s", command, reply.ExitCode, reply.Stderr)
	}
	return strings.TrimSpace(string(reply.Stdout))
}

// want fails the test unless the command prints want in the container.
func (n *node) want(p pod, command, want string) {
	n.Helper()
	if got := n.sh(p, command); got != want {
		n.Errorf("%s prints %q in the container, want %q", command, got, want)
	}
}
