package integration

import (
	"os"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestImageCommands writes an image to an archive, removes it, loads it again and runs a container of it, with the same
// daemon and the same image id. Prune removes only what no container uses.
func TestImageCommands(t *testing.T) {
	t.Parallel()
	k := start(t)
	const name = "registry.k8s.io/e2e-test-images/busybox:1.36.1-1"
	id := k.pull(name)
	file := k.Path("busybox.tar")
	k.runs("image", "export", name, file)
	if _, errs, code := k.podd("image", "export", name, file); code != 1 || !strings.Contains(errs, "exists") {
		k.Errorf("second export: exit status %d, %q, want 1 and that the file exists", code, errs)
	}
	k.removeImage(name)
	if out := k.runs("image", "list"); strings.Contains(out, name) {
		k.Errorf("image list after the removal:\n%s", out)
	}
	if out := k.runs("image", "load", file); !strings.Contains(out, "loaded") || !strings.Contains(out, name) {
		k.Errorf("image load = %q, want the name", out)
	}
	k.removeImage(name)
	archive, err := os.ReadFile(file)
	k.ok("read the archive", err)
	if out, errs, code := k.poddWith(strings.NewReader(string(archive)), "image", "load", "-"); code != 0 ||
		!strings.Contains(out, name) {
		k.Errorf("image load - = %q, %q, exit status %d, want the name", out, errs, code)
	}
	if out := k.runs("image", "list"); !strings.Contains(out, name) {
		k.Errorf("image list, want %s:\n%s", name, out)
	}
	if img := k.image(name); img.GetId() != id {
		k.Errorf("loaded image = %v, want id %s", img, id)
	}
	pod, cfg := k.pod()
	k.runIn(pod, cfg, []string{"sleep", "1000"}, func(c *cri.ContainerConfig) { c.Image.Image = name })

	unused := "docker.io/library/busybox:latest"
	k.ok("write a file that is no archive", os.WriteFile(k.Path("noise"), []byte("x"), 0o600))
	if out, _, code := k.podd("image", "load", k.Path("noise"), file); code != 1 || strings.Count(out, "not loaded") != 1 {
		k.Errorf("load of a wrong and a right file: exit status %d, want 1 and one failure:\n%s", code, out)
	}
	other := k.pull("gcr.io/k8s-staging-cri-tools/test-image-digest:latest")
	if out := k.runs("image", "prune"); !strings.Contains(out, other[:12]) || strings.Contains(out, id[:12]) {
		k.Errorf("image prune, want %s and not %s:\n%s", other, id, out)
	}
	if k.image(other) == nil {
		k.Error("image prune without --yes has removed an image")
	}
	k.runs("image", "prune", "--yes")
	if k.image(other) != nil || k.image(name) == nil {
		k.Errorf("images after prune --yes: %v and %v, want only the used one", k.image(other), k.image(name))
	}
	if out := k.runs("image", "explain", unused); !strings.Contains(out, unused) ||
		!strings.Contains(out, "signature policy: ") {
		k.Errorf("image explain %s:\n%s", unused, out)
	}
}

// runs runs podd, which must succeed, and returns its output.
func (k *kubelet) runs(args ...string) string {
	k.Helper()
	out, errs, code := k.podd(args...)
	if code != 0 {
		k.Fatalf("podd %v: exit status %d\n%s%s", args, code, out, errs)
	}
	return out
}
