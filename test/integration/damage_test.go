package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestDamagedLayer truncates a file in a layer of an image and simulates a reboot. The next daemon detects it and does
// not list the image; its container keeps running; other images remain; and a new pull fetches only that layer.
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
		t.Fatalf("%s: %v, %v, want one file", damaged, files, err)
	}
	k.ok("truncate it", os.Truncate(files[0], 0))
	state := k.Path("root", "storage", "integrity.json")
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	k.ok("read the boot id", err)
	data, err := os.ReadFile(state)
	k.ok("read the state of the image store", err)
	other := strings.Replace(string(data), strings.TrimSpace(string(boot)), "11111111-2222-3333-4444-555555555555", 1)
	if other == string(data) {
		t.Fatalf("%s lacks the boot id, want it in: %s", state, data)
	}
	k.ok("write another boot id", os.WriteFile(state, []byte(other), 0o600))
	asked := len(k.registry.Requests())

	k.ok("start podd", k.Start(k.ctx()))
	k.eventually("the damaged image is not listed", func() bool { return k.image(nginx) == nil })
	if k.image(busybox) == nil {
		t.Error("undamaged image: listed = false, want true")
	}
	k.exec(container, "true")
	var f findings
	k.poddJSON(&f, 1, "check", "--images")
	if len(f.Found) != 1 || f.Found[0].What != "image layer" || !strings.Contains(f.Found[0].Detail,
		"etc/nginx/nginx.conf") {
		t.Errorf("check found %+v, want one image layer, with etc/nginx/nginx.conf", f)
	}
	k.pull(nginx)
	if got := k.content(nginx); got != want {
		t.Errorf("content of the image pulled again = %q, want %q", got, want)
	}
	k.exec(container, "true")
	blobs := map[string]bool{}
	for _, r := range k.registry.Requests()[asked:] {
		if strings.HasPrefix(r, "GET ") && strings.Contains(r, "/blobs/") {
			blobs[r] = true
		}
		if !strings.Contains(r, "nginx") && strings.Contains(r, "/manifests/") {
			t.Errorf("registry request = %s, want only requests for nginx", r)
		}
	}
	if len(blobs) == 0 || len(blobs) > 2 { // the layer, and perhaps the image's configuration
		t.Errorf("fetched blobs = %v, want 1 or 2", blobs)
	}
	f = findings{}
	k.poddJSON(&f, 0, "check", "--images")
}
