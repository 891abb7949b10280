package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestDamagedLayer: the machine loses power, and a layer of an image has lost a file. The next daemon finds out and
// lists the image no more; its container runs on; other images stay; and who pulls it again gets the layer and nothing
// else.
func TestDamagedLayer(t *testing.T) {
	t.Parallel()
	k := start(t)
	k.have(busybox)
	k.have(nginx)
	want := k.content(nginx)
	_, container := k.sleeper(func(c *cri.ContainerConfig) { c.Image = &cri.ImageSpec{Image: nginx} })
	k.ok("kill podd", k.Kill9())
	damaged := k.Path("root", "storage", "overlay", "*", "diff", "etc", "nginx", "nginx.conf")
	files, err := filepath.Glob(damaged)
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %v %v", damaged, files, err)
	}
	k.ok("empty it", os.Truncate(files[0], 0))
	state := k.Path("root", "storage", "integrity.json")
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	k.ok("read the boot id", err)
	data, err := os.ReadFile(state)
	k.ok("read what the image store knows", err)
	other := strings.Replace(string(data), strings.TrimSpace(string(boot)), "11111111-2222-3333-4444-555555555555", 1)
	if other == string(data) {
		t.Fatalf("%s does not tell the boot: %s", state, data)
	}
	k.ok("make it another boot", os.WriteFile(state, []byte(other), 0o600))
	asked := len(k.registry.Requests())

	k.ok("start podd", k.Start(k.ctx()))
	k.eventually("the image with the damage is not listed", func() bool { return k.image(nginx) == nil })
	if k.image(busybox) == nil {
		t.Error("an image without damage is gone")
	}
	k.exec(container, "true")
	var f findings
	k.poddJSON(&f, 1, "check", "--images")
	if len(f.Found) != 1 || f.Found[0].What != "image layer" || !strings.Contains(f.Found[0].Detail,
		"etc/nginx/nginx.conf") {
		t.Errorf("check found %+v", f)
	}
	k.pull(nginx)
	if got := k.content(nginx); got != want {
		t.Error("pulled again, the image has another content")
	}
	k.exec(container, "true")
	blobs := map[string]bool{}
	for _, r := range k.registry.Requests()[asked:] {
		if strings.HasPrefix(r, "GET ") && strings.Contains(r, "/blobs/") {
			blobs[r] = true
		}
		if !strings.Contains(r, "nginx") && strings.Contains(r, "/manifests/") {
			t.Errorf("another image was asked for: %s", r)
		}
	}
	if len(blobs) == 0 || len(blobs) > 2 { // the layer, and perhaps the image's configuration
		t.Errorf("fetched %v", blobs)
	}
	f = findings{}
	k.poddJSON(&f, 0, "check", "--images")
}
