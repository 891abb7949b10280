package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/podd-project/podd/oci/spec"
)

func TestMounts(t *testing.T) {
	dir := t.TempDir()
	real := filepath.Join(dir, "real")
	if err := errors.Join(os.Mkdir(real, 0o755), os.Symlink("real", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(real, "file"), "")
	ms := []*cri.Mount{
		{ContainerPath: "/a", HostPath: real},
		{ContainerPath: "/b", HostPath: filepath.Join(dir, "link")},
		{ContainerPath: "/c", HostPath: filepath.Join(dir, "link/file")},
		{ContainerPath: "/d", HostPath: "/dev/null"},
	}
	got, err := NewResolver(1, false).Mounts(t.Context(), ms, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []spec.Mount{
		{Config: ms[0], Source: real, IsDir: true}, {Config: ms[1], Source: real, IsDir: true},
		{Config: ms[2], Source: real + "/file"}, {Config: ms[3], Source: "/dev/null"},
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("mount %d = %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestMountErrors(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("loop", filepath.Join(dir, "loop")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "file"), "")
	for name, c := range map[string]struct {
		path string
		kind error
	}{
		"missing":       {filepath.Join(dir, "none"), errdefs.ErrNotFound},
		"below a file":  {filepath.Join(dir, "file/x"), nil},
		"loop":          {filepath.Join(dir, "loop"), nil},
		"relative":      {"etc", errdefs.ErrInvalidArgument},
		"empty":         {"", errdefs.ErrInvalidArgument},
		"NUL":           {"/etc\x00", errdefs.ErrInvalidArgument},
		"name too long": {"/" + strings.Repeat("x", 300), nil},
	} {
		_, err := NewResolver(1, false).Mounts(t.Context(), []*cri.Mount{{ContainerPath: "/to", HostPath: c.path}}, nil)
		if err == nil || c.kind != nil && !errors.Is(err, c.kind) || !strings.Contains(err.Error(), `"/to"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestImageMounts(t *testing.T) {
	outside := t.TempDir()
	write(t, filepath.Join(outside, "secret"), "")
	root := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(root, "models/v2"), 0o755),
		os.Symlink("/models", filepath.Join(root, "abs")),
		os.Symlink(outside, filepath.Join(root, "out")),
		os.Symlink("../../../../../../.."+outside, filepath.Join(root, "up")),
		os.Symlink("/proc/self/root", filepath.Join(root, "magic")),
		unix.Mkfifo(filepath.Join(root, "fifo"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(root, "models/v2/weights"), "")
	for sub, want := range map[string]string{
		"": root, "/": root, ".": root, "models": root + "/models", "/models/v2": root + "/models/v2",
		"abs/v2": root + "/models/v2", "models/v2/weights": root + "/models/v2/weights",
	} {
		got, err := NewResolver(1, false).Mounts(
			t.Context(), []*cri.Mount{{Image: &cri.ImageSpec{Image: "i"}, ImageSubPath: sub}}, map[int]string{0: root},
		)
		if err != nil || got[0].Source != want || got[0].IsDir != !strings.HasSuffix(sub, "weights") {
			t.Errorf("Mounts of sub path %q = %+v, %v, want source %s", sub, got, err, want)
		}
	}
	for sub, kind := range map[string]error{
		"none": errdefs.ErrNotFound, "out/secret": errdefs.ErrNotFound, "up/secret": errdefs.ErrNotFound,
		"magic/etc": crierrors.ErrImageVolumeMountFailed, "fifo": crierrors.ErrImageVolumeMountFailed,
		"../x": errdefs.ErrInvalidArgument, "models/../../x": errdefs.ErrInvalidArgument,
		"a\x00b": errdefs.ErrInvalidArgument,
	} {
		_, err := NewResolver(1, false).Mounts(
			t.Context(), []*cri.Mount{{Image: &cri.ImageSpec{Image: "i"}, ImageSubPath: sub}}, map[int]string{0: root},
		)
		if !errors.Is(err, kind) {
			t.Errorf("Mounts of sub path %q: error %v, want %v", sub, err, kind)
		}
		if errors.Is(kind, errdefs.ErrNotFound) && !errors.Is(err, crierrors.ErrImageVolumeMountFailed) {
			t.Errorf("Mounts of sub path %q: error %v, want ErrImageVolumeMountFailed too", sub, err)
		}
	}
	both := &cri.Mount{Image: &cri.ImageSpec{Image: "i"}, HostPath: "/etc"}
	if _, err := NewResolver(1, false).Mounts(
		t.Context(), []*cri.Mount{both}, map[int]string{0: root},
	); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("Mounts of an image and a host path: error %v, want ErrInvalidArgument", err)
	}
	if _, err := NewResolver(1, false).Mounts(
		t.Context(), []*cri.Mount{{Image: &cri.ImageSpec{Image: "i"}}}, nil,
	); !errors.Is(err, crierrors.ErrImageVolumeMountFailed) {
		t.Errorf("Mounts of an image that is not mounted: error %v, want ErrImageVolumeMountFailed", err)
	}
}

// TestSubPathSwapped races the lookup with a process that exchanges a directory for a link out of the image.
func TestSubPathSwapped(t *testing.T) {
	outside, root := t.TempDir(), t.TempDir()
	for _, dir := range []string{outside, filepath.Join(root, "models")} {
		if err := os.MkdirAll(filepath.Join(dir, "v2"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(root, "evil")); err != nil {
		t.Fatal(err)
	}
	swapping(t, filepath.Join(root, "models"), filepath.Join(root, "evil"))
	found := 0
	for range 3000 {
		real, _, err := realPathIn(root, "models/v2")
		if strings.HasPrefix(real, outside) {
			t.Fatalf("realPathIn = %s, want a path in the image", real)
		}
		if err == nil {
			found++
		}
	}
	if found == 0 {
		t.Error("realPathIn never succeeded, want it to at times: the race proves nothing")
	}
}

// TestHangingPath: the caller gets its answer when its context ends, and what hangs stays bounded.
func TestHangingPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := make(chan struct{}) // the filesystem's server comes back
		r := NewResolver(2, false)
		r.look = func(path string) (string, bool, error) {
			if strings.HasPrefix(path, "/dead") {
				<-back
			}
			return path, true, nil
		}
		resolve := func(path string, limit time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := r.Mounts(ctx, []*cri.Mount{{HostPath: "/fine"}, {HostPath: path}}, nil)
			return err
		}
		for _, path := range []string{"/dead/nfs", "/dead/too"} {
			begin := time.Now()
			err := resolve(path, time.Minute)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want one that names the path", err)
			}
			if took := time.Since(begin); took != time.Minute {
				t.Errorf("Mounts returned after %v", took)
			}
			if path == "/dead/too" {
				break
			}
			// Retried, as a kubelet does, it uses no second slot, and no caller waits.
			for range 3 {
				if err := resolve(path, time.Minute); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), path) {
					t.Errorf("Mounts of the dead volume again: error %v", err)
				}
			}
			if err := resolve("/also-fine", time.Second); err != nil {
				t.Errorf("Mounts of another pod while a volume is dead: %v", err)
			}
		}
		// Both places are taken: a third caller must not add a goroutine, and hears why it waited.
		if err := resolve("/also-fine", time.Second); !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "2 lookups") {
			t.Errorf("error %v does not say what is wrong", err)
		}
		close(back)
		synctest.Wait()
		if err := errors.Join(resolve("/also-fine", time.Second), resolve("/dead/nfs", time.Second)); err != nil {
			t.Errorf("Mounts after the filesystem came back: %v", err)
		}
	})
}

func TestCheckPropagation(t *testing.T) {
	const (
		private       = cri.MountPropagation_PROPAGATION_PRIVATE
		slave         = cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		bidirectional = cri.MountPropagation_PROPAGATION_BIDIRECTIONAL
	)
	for name, c := range map[string]struct {
		optional string
		p        cri.MountPropagation
		says     string
	}{
		"private anywhere":    {"", private, ""},
		"slave of shared":     {"shared:5", slave, ""},
		"slave of slave":      {"master:5", slave, ""},
		"slave of private":    {"", slave, "neither shared nor a slave"},
		"slave of unbindable": {"unbindable", slave, "neither shared nor a slave"},
		"both of shared":      {"shared:5", bidirectional, ""},
		"both of both":        {"master:3 shared:5", bidirectional, ""},
		"both of slave":       {"master:5", bidirectional, "not shared"},
		"both of private":     {"", bidirectional, "not shared"},
	} {
		r := NewResolver(1, false)
		r.mounts = func(string) ([]*mountinfo.Info, error) {
			return []*mountinfo.Info{
				{Mountpoint: "/", Optional: "shared:1"}, {Mountpoint: "/srv", Optional: "shared:2"},
				{Mountpoint: "/srv", Optional: c.optional}, // on top
			}, nil
		}
		err := r.checkPropagation(c.p, "/srv/data")
		switch {
		case c.says == "" && err != nil, c.says != "" && !errors.Is(err, errdefs.ErrFailedPrecondition):
			t.Errorf("%s: %v", name, err)
		case c.says != "" && !(strings.Contains(err.Error(), c.says) && strings.Contains(err.Error(), "/srv")):
			t.Errorf("%s: checkPropagation: error %v, want one with %q", name, err, c.says)
		}
	}
}

// TestPropagationOfRealMounts asks the kernel.
func TestPropagationOfRealMounts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("podd-test", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	resolve := func(p cri.MountPropagation) error {
		_, err := NewResolver(1, false).Mounts(t.Context(), []*cri.Mount{{HostPath: dir, Propagation: p}}, nil)
		return err
	}
	for _, c := range []struct {
		flag              uintptr
		toContainer, both bool
	}{
		{unix.MS_PRIVATE, false, false}, {unix.MS_SHARED, true, true}, {unix.MS_SHARED | unix.MS_SLAVE, true, false},
	} {
		for _, flag := range []uintptr{unix.MS_PRIVATE, unix.MS_SHARED} {
			if c.flag&flag != 0 {
				mustMount(t, dir, flag)
			}
		}
		if c.flag&unix.MS_SLAVE != 0 { // a slave needs a peer to be the slave of
			peer := t.TempDir()
			if err := unix.Mount(dir, peer, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Unmount(peer, unix.MNT_DETACH) }()
			mustMount(t, dir, unix.MS_SLAVE)
		}
		if err := resolve(cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER); (err == nil) != c.toContainer {
			t.Errorf("flags %#x, host to container: %v", c.flag, err)
		}
		if err := resolve(cri.MountPropagation_PROPAGATION_BIDIRECTIONAL); (err == nil) != c.both {
			t.Errorf("flags %#x, bidirectional: %v", c.flag, err)
		}
	}
}

func mustMount(t *testing.T, dir string, flags uintptr) {
	t.Helper()
	if err := unix.Mount("", dir, "", flags, ""); err != nil {
		t.Fatal(err)
	}
}

// TestRelabelOff: without SELinux there is no label, and nothing is touched.
func TestRelabelOff(t *testing.T) {
	r := NewResolver(1, false)
	m := []spec.Mount{{Config: &cri.Mount{SelinuxRelabel: true}, Source: "/nonexistent"}}
	if err := r.Relabel(t.Context(), m, ""); err != nil {
		t.Error(err)
	}
}
