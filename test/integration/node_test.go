package integration

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/images"
)

// What can be wrong with a node.

// A full disk refuses what needs space, leaves nothing half done, and podd goes on when there is space again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	k := start(t)
	k.ok("stop podd", k.Stop())
	root := k.Path("root")
	unmountBelow(k, root)
	k.ok("mount a small disk", unix.Mount("podd-test", root, "tmpfs", 0, "size=20m,mode=0711"))
	t.Cleanup(func() { // runs before the daemon is closed
		if k.Running() {
			k.ok("stop podd", k.Stop())
		}
		unmountBelow(k, root)
		k.ok("start podd", k.Start(context.Background()))
	})
	k.ok("start podd", k.Start(k.ctx()))
	k.have(busybox)
	pod, podCfg := k.pod()
	ctr, _ := k.runIn(pod, podCfg, []string{"sleep", "1000"})

	_, err := k.tryPull("docker.io/podd/layered:latest", nil)
	k.refused("an image larger than the disk", err, "no space", codes.ResourceExhausted)
	if img := k.image("docker.io/podd/layered:latest"); img != nil {
		t.Errorf("half an image: %v", img)
	}
	filler := filepath.Join(root, "filler")
	fill(k, filler)
	_, err = k.Runtime.RunPodSandbox(k.ctx(), &cri.RunPodSandboxRequest{Config: k.podConfig()})
	k.refused("a pod on a full disk", err, "no space", codes.ResourceExhausted)
	_, err = k.tryCreate(pod, k.containerConfig([]string{"true"}), podCfg)
	k.refused("a container on a full disk", err, "no space", codes.ResourceExhausted)
	k.exec(ctr, "true") // what runs goes on
	if n := len(k.pods(nil)); n != 1 {
		t.Errorf("%d pods are listed, want the one from before", n)
	}
	other, _ := k.container(ctr), k.podStatus(pod)
	if other.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container is %v", other.State)
	}
	k.ok("free the disk", os.Remove(filler))
	k.removePod(pod)
	again, _ := k.pod()
	k.removePod(again)
}

// fill writes until there is no space left.
func fill(k *kubelet, path string) {
	k.Helper()
	f, err := os.Create(path)
	k.ok("create", err)
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
	if !strings.Contains(err.Error(), "no space") {
		k.Fatalf("fill the disk: %v", err)
	}
}

// A handler whose runtime is not there is not ready, says so, and harms no other.
func TestMissingRuntime(t *testing.T) {
	t.Parallel()
	k := start(t, `runtime.handlers.ghost.path="/no/such/runtime"`)
	s, err := k.Runtime.Status(k.ctx(), &cri.StatusRequest{})
	k.ok("Status", err)
	said := ""
	for _, c := range s.Status.Conditions {
		if c.Type == cri.RuntimeReady && !c.Status {
			t.Errorf("the default handler is not ready: %v", c)
		}
		if strings.Contains(c.Type, "ghost") && !c.Status {
			said = c.Message
		}
	}
	if !strings.Contains(said, "/no/such/runtime") {
		t.Errorf("conditions %v do not say what is missing", s.Status.Conditions)
	}
	_, err = k.Runtime.RunPodSandbox(k.ctx(), &cri.RunPodSandboxRequest{Config: k.podConfig(), RuntimeHandler: "ghost"})
	k.refused("a pod for a handler whose runtime is missing", err, "/no/such/runtime", codes.Unavailable,
		codes.FailedPrecondition, codes.NotFound)
	k.pod()

	k.ok("restart with another default",
		os.WriteFile(k.Path("podd.toml.d", "60.toml"), []byte(`runtime.default_handler = "ghost"`+"\n"), 0o644))
	k.ok("restart", k.Restart(k.ctx(), k.Stop))
	s, err = k.Runtime.Status(k.ctx(), &cri.StatusRequest{})
	k.ok("Status", err)
	for _, c := range s.Status.Conditions {
		if c.Type == cri.RuntimeReady && (c.Status || !strings.Contains(c.Message, "/no/such/runtime")) {
			t.Errorf("with a default handler that is missing the runtime is %v", c)
		}
	}
}

// Images in the preload directory are there without a registry, pinned.
func TestPreload(t *testing.T) {
	t.Parallel()
	k := start(t)
	k.ok("stop podd", k.Stop())
	path, err := images.Build(t.Context())
	k.ok("find the images", err)
	dir := k.Path("root", "preload")
	k.ok("make the preload directory", os.MkdirAll(dir, 0o755))
	k.ok("put an image there", images.Export(path, "e2e-test-images/busybox:1.29-2", "example.com/air-gapped:1",
		filepath.Join(dir, "busybox")))
	k.ok("and nonsense", os.WriteFile(filepath.Join(dir, "nonsense.tar"), []byte("not an archive"), 0o644))
	k.ok("start podd", k.Start(k.ctx()))
	k.eventually("the image is loaded", func() bool { return k.image("example.com/air-gapped:1") != nil })
	if img := k.image("example.com/air-gapped:1"); !img.Pinned {
		t.Errorf("the image is not pinned: %v", img)
	}
	out, _ := k.output("echo from the air-gapped image",
		func(c *cri.ContainerConfig) { c.Image = &cri.ImageSpec{Image: "example.com/air-gapped:1"} })
	if out != "from the air-gapped image\n" {
		t.Errorf("it printed %q", out)
	}
	for _, r := range k.registry.Requests() {
		if strings.Contains(r, "air-gapped") {
			t.Errorf("the registry was asked: %s", r)
		}
	}
}
