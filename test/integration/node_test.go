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

// TestFullDisk: on a full disk calls that need space fail and leave nothing behind, and podd works again when there is
// space.
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
		t.Errorf("ImageStatus after a failed pull = %v, want none", img)
	}
	filler := filepath.Join(root, "filler")
	fill(k, filler)
	_, err = k.Runtime.RunPodSandbox(k.ctx(), &cri.RunPodSandboxRequest{Config: k.podConfig()})
	k.refused("a pod on a full disk", err, "no space", codes.ResourceExhausted)
	_, err = k.tryCreate(pod, k.containerConfig([]string{"true"}), podCfg)
	k.refused("a container on a full disk", err, "no space", codes.ResourceExhausted)
	k.exec(ctr, "true") // containers keep running
	if n := len(k.pods(nil)); n != 1 {
		t.Errorf("listed pods = %d, want 1, created before", n)
	}
	other, _ := k.container(ctr), k.podStatus(pod)
	if other.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("container state = %v, want CONTAINER_RUNNING", other.State)
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
		k.Fatalf("fill the disk: error = %v, want \"no space\"", err)
	}
}

// TestFullRunDirectory: a node whose run directory is full is not ready, and is ready once there is space.
func TestFullRunDirectory(t *testing.T) {
	t.Parallel()
	k := start(t)
	k.ok("stop podd", k.Stop())
	run := k.Path("run")
	k.ok("mount a small disk", unix.Mount("podd-test", run, "tmpfs", 0, "size=8m,mode=0700"))
	t.Cleanup(func() { // runs before the daemon is closed
		k.ok("stop podd", k.Stop())
		unmountBelow(k, run)
		k.ok("start podd", k.Start(context.Background()))
	})
	k.ok("start podd", k.Start(k.ctx()))
	condition := func() *cri.RuntimeCondition {
		s, err := k.Runtime.Status(k.ctx(), &cri.StatusRequest{})
		k.ok("Status", err)
		return s.Status.Conditions[0]
	}
	k.eventually("the runtime is ready", func() bool { return condition().Status })
	filler := filepath.Join(run, "filler")
	fill(k, filler)
	if c := condition(); c.Type != cri.RuntimeReady || c.Status || !strings.Contains(c.Message, run) {
		t.Errorf("condition of a full run directory = %v, want RuntimeReady false and %s in the message", c, run)
	}
	k.ok("free the space", os.Remove(filler))
	if c := condition(); !c.Status {
		t.Errorf("condition with space again = %v, want ready", c)
	}
	pod, _ := k.pod()
	k.removePod(pod)
}

// TestMissingRuntime: a handler whose binary does not exist is reported as not ready, and does not affect others.
func TestMissingRuntime(t *testing.T) {
	t.Parallel()
	k := start(t, `runtime.handlers.ghost.path="/no/such/runtime"`)
	s, err := k.Runtime.Status(k.ctx(), &cri.StatusRequest{})
	k.ok("Status", err)
	message := ""
	for _, c := range s.Status.Conditions {
		if c.Type == cri.RuntimeReady && !c.Status {
			t.Errorf("condition of the default handler = %v, want ready", c)
		}
		if strings.Contains(c.Type, "ghost") && !c.Status {
			message = c.Message
		}
	}
	if !strings.Contains(message, "/no/such/runtime") {
		t.Errorf("conditions = %v, want one of ghost that names /no/such/runtime", s.Status.Conditions)
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
			t.Errorf("RuntimeReady with a missing default handler = %v, want false, naming /no/such/runtime", c)
		}
	}
}

// TestPreload: images in the preload directory are loaded without a registry, and pinned.
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
	k.ok("write a file that is not an archive",
		os.WriteFile(filepath.Join(dir, "nonsense.tar"), []byte("not an archive"), 0o644))
	k.ok("start podd", k.Start(k.ctx()))
	k.eventually("the image is loaded", func() bool { return k.image("example.com/air-gapped:1") != nil })
	if img := k.image("example.com/air-gapped:1"); !img.Pinned {
		t.Errorf("preloaded image = %v, want it pinned", img)
	}
	out, _ := k.output("echo from the air-gapped image",
		func(c *cri.ContainerConfig) { c.Image = &cri.ImageSpec{Image: "example.com/air-gapped:1"} })
	if out != "from the air-gapped image\n" {
		t.Errorf("output = %q, want %q", out, "from the air-gapped image\n")
	}
	for _, r := range k.registry.Requests() {
		if strings.Contains(r, "air-gapped") {
			t.Errorf("registry request = %s, want none for the preloaded image", r)
		}
	}
}
