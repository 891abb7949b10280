package criu

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func TestCheckMounts(t *testing.T) {
	hierarchies, err := os.ReadDir("/sys/fs/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	hierarchy := hierarchies[0].Name()
	for name, tt := range map[string]struct {
		link, to string // in the image
		refused  bool
	}{
		"no links":           {},
		"link":               {"data", "/srv", false},
		"out":                {"data", "../../..", true}, // the root: CRIU would look for the mount by itself
		"misread":            {"data", "/x]:/etc", true},
		"misread, far":       {"run", "y/]:", true},
		"misread, twice":     {"data", "run/]:/etc", true},
		"misread, a device":  {"dev/fuse", "/x]:/etc", true},
		"misread, runc's":    {"dev/zero", "/x]:/etc", true},
		"misread, a cgroup":  {"sys/fs/cgroup/" + hierarchy, "/x]:/etc", true},
		"odd, not misread":   {"data", "/x]/:etc", false},
		"odd, not a mount's": {"other", "/x]:/etc", false},
	} {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(tt.link)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(tt.to, filepath.Join(root, tt.link)); tt.link != "" && err != nil {
			t.Fatal(err)
		}
		s := &specs.Spec{
			Root: &specs.Root{Path: root},
			Mounts: []specs.Mount{
				{Destination: "/data"}, {Destination: "/run/secrets/token"}, {Destination: "/sys/fs/cgroup", Type: "cgroup"},
			},
			Linux: &specs.Linux{Devices: []specs.LinuxDevice{{Path: "/dev/fuse"}}},
		}
		if err := CheckMounts(s); errdefs.IsPermissionDenied(err) != tt.refused || !tt.refused && err != nil {
			t.Errorf("%s: CheckMounts = %v, want refused: %v", name, err, tt.refused)
		}
	}
}
