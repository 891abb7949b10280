package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
)

// TestKnownAttacks: what other runtimes took from an archive that somebody had changed, podd refuses even with a valid
// seal: mounts, names of images, links in the place of logs, devices.
func TestKnownAttacks(t *testing.T) {
	for _, tt := range []struct {
		name string
		// had changes the config that the manifest has of the container.
		had   func(c *cri.ContainerConfig)
		words string
	}{
		{"CVE-2024-8676, a mount of the node", func(c *cri.ContainerConfig) {
			c.Mounts = append(c.Mounts, &cri.Mount{ContainerPath: "/host", HostPath: "/"})
		}, "mounts"},
		{"CVE-2026-50195, the name of an image", func(c *cri.ContainerConfig) {
			c.Image = &cri.ImageSpec{Image: "registry.k8s.io/pause:3.10"}
		}, "image"},
		{"CVE-2026-53489, the path of a log", func(c *cri.ContainerConfig) { c.LogPath = "../../etc/shadow" }, "log_path"},
		{"CVE-2026-53492, CDI devices", func(c *cri.ContainerConfig) {
			c.CDIDevices = []*cri.CDIDevice{{Name: "vendor.com/gpu=all"}}
		}, "CDI_devices"},
		{"CVE-2026-53492, CDI annotations", func(c *cri.ContainerConfig) {
			c.Annotations = map[string]string{"cdi.k8s.io/x": "vendor.com/gpu=all"}
		}, "annotations"},
		{"a device", func(c *cri.ContainerConfig) {
			c.Devices = []*cri.Device{{HostPath: "/dev/sda", ContainerPath: "/dev/sda", Permissions: "rwm"}}
		}, "devices"},
		{"privileged", func(c *cri.ContainerConfig) {
			c.Linux = &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{Privileged: true}}
		}, "privileged"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, key := output(t), newKey(t)
			w, err := Create(dir, KindGVisor, "")
			must(t, err)
			defer w.Close()
			writeImages(t, w)
			m := manifest(t)
			expected := expectedContainer(config("web"))
			tt.had(expected)
			m.Containers[0].Config, err = encode(expected)
			must(t, err)
			must(t, w.Commit(t.Context(), m, key))
			s, err := Open(dir, Trust{Key: key})
			must(t, err)
			err = s.CheckContainers([]*cri.ContainerConfig{config("web")})
			if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("CheckContainers = %v, want %v, naming %s", err, errdefs.ErrFailedPrecondition, tt.words)
			}
		})
	}
}

// TestOtherFiles: files of other runtimes' archives in the directory of a checkpoint have no effect, and cannot be
// among its images.
func TestOtherFiles(t *testing.T) {
	plant := func(dir, name string) error { return os.Symlink("/etc/shadow", filepath.Join(dir, name)) }
	for _, name := range []string{"container.log", "spec.dump", "config.dump", "bind.mounts", "../container.log"} {
		if err := dump(t, output(t), newKey(t), dumper{spoil: func(d string) error { return plant(d, name) }}); err == nil {
			t.Errorf("checkpoint with a link %s = nil, want an error", name)
		}
	}
	dir, key := output(t), newKey(t)
	must(t, dump(t, dir, key, dumper{}))
	at := filepath.Join(dir, KindCRIU, directoryOf("web"))
	must(t, errors.Join(plant(at, "container.log"), plant(filepath.Join(at, oci.DumpImages), "descriptors.json")))
	s, err := Open(dir, Trust{Key: key})
	must(t, err)
	to := filepath.Join(t.TempDir(), "staged")
	must(t, s.Stage(t.Context(), to))
	for _, line := range files(t, to) {
		if strings.Contains(line, "container.log") || strings.Contains(line, "descriptors") {
			t.Errorf("staged %s, want only what the manifest lists", line)
		}
	}
}
