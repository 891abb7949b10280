package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/spec"
)

func null(source, path, access string) spec.Device {
	return spec.Device{Access: access, Source: source, Node: specs.LinuxDevice{
		Path: path, Type: "c", Major: 1, Minor: 3, FileMode: new(fs.FileMode(0o640)), UID: new(uint32(0)),
		GID: new(uint32(7)),
	}}
}

// deviceDir has null twice, one of them in a directory, a link to it, and things that are no devices.
func deviceDir(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("making device nodes needs root")
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"null", "sub/null"} {
		path := filepath.Join(dir, name)
		err := errors.Join(
			unix.Mknod(path, unix.S_IFCHR|0o640, int(unix.Mkdev(1, 3))), os.Chown(path, 0, 7), os.Chmod(path, 0o640),
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "file"), "")
	for _, err := range []error{
		os.Symlink("null", filepath.Join(dir, "link")),
		os.Symlink("sub", filepath.Join(dir, "sublink")),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestDevices(t *testing.T) {
	dir := deviceDir(t)
	for name, c := range map[string]struct {
		d    *cri.Device
		want []spec.Device
	}{
		"device": {
			&cri.Device{HostPath: dir + "/null", ContainerPath: "/dev/x", Permissions: "rw"},
			[]spec.Device{null(dir+"/null", "/dev/x", "rw")},
		},
		"same path": {
			&cri.Device{HostPath: dir + "/null", Permissions: "m"},
			[]spec.Device{null(dir+"/null", dir+"/null", "m")},
		},
		"no permissions": {
			&cri.Device{HostPath: dir + "/null", ContainerPath: "/dev/x"},
			[]spec.Device{null(dir+"/null", "/dev/x", "rwm")},
		},
		"link": {
			&cri.Device{HostPath: dir + "/link", ContainerPath: "/dev/x"},
			[]spec.Device{null(dir+"/null", "/dev/x", "rwm")},
		},
		"directory": {
			&cri.Device{HostPath: dir, ContainerPath: "/dev/d"},
			[]spec.Device{null(dir+"/null", "/dev/d/null", "rwm"), null(dir+"/sub/null", "/dev/d/sub/null", "rwm")},
		},
		"linked dir": {
			&cri.Device{HostPath: dir + "/sublink", ContainerPath: "/dev/d"},
			[]spec.Device{null(dir+"/sub/null", "/dev/d/null", "rwm")},
		},
	} {
		got, err := Devices([]*cri.Device{c.d})
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: Devices: error %v, difference (-want +got):\n%s", name, err, diff)
		}
	}
	for name, c := range map[string]struct {
		d    *cri.Device
		kind error
	}{
		"missing":       {&cri.Device{HostPath: dir + "/none"}, errdefs.ErrNotFound},
		"file":          {&cri.Device{HostPath: dir + "/file"}, errdefs.ErrInvalidArgument},
		"fifo":          {&cri.Device{HostPath: dir + "/fifo"}, errdefs.ErrInvalidArgument},
		"relative":      {&cri.Device{HostPath: "null"}, errdefs.ErrInvalidArgument},
		"relative to":   {&cri.Device{HostPath: dir + "/null", ContainerPath: "x"}, errdefs.ErrInvalidArgument},
		"permissions":   {&cri.Device{HostPath: dir + "/null", Permissions: "rx"}, errdefs.ErrInvalidArgument},
		"rr":            {&cri.Device{HostPath: dir + "/null", Permissions: "rr"}, errdefs.ErrInvalidArgument},
		"empty request": {&cri.Device{}, errdefs.ErrInvalidArgument},
	} {
		if got, err := Devices([]*cri.Device{c.d}); !errors.Is(err, c.kind) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestHostDevices: null is among them, what each container has of its own is not, and a new device is found at once.
func TestHostDevices(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("making device nodes needs root")
	}
	paths := func() []string {
		devs, err := HostDevices()
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, d := range devs {
			out = append(out, d.Node.Path)
			if d.Access != "rwm" || d.Node.FileMode.Type() != 0 {
				t.Errorf("%+v", d)
			}
		}
		return out
	}
	before := paths()
	if !slices.Contains(before, "/dev/null") {
		t.Errorf("HostDevices = %q, want /dev/null among them", before)
	}
	for _, p := range before {
		if strings.HasPrefix(p, "/dev/pts/") || strings.HasPrefix(p, "/dev/shm/") || p == "/dev/console" || p == "/dev/ptmx" {
			t.Errorf("HostDevices has %s, which each container has of its own", p)
		}
	}
	fresh := "/dev/podd-test-null"
	if err := unix.Mknod(fresh, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(fresh) })
	if !slices.Contains(paths(), fresh) {
		t.Error("HostDevices lacks a new device")
	}
}
