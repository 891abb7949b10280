package image_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image"
)

func checkFile(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	} else if string(got) != want {
		t.Errorf("%s has %q, want %q", path, got, want)
	}
}

func rootfs(t testing.TB, s *image.Store, container, id string) string {
	t.Helper()
	path, err := s.Rootfs(t.Context(), image.RootfsRequest{ContainerID: container, ImageID: id})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestVolumeIsReadOnly(t *testing.T) {
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	s := open(t, config(t, reg.host))
	img := pull(t, s, reg.host+"/app:v1")
	path, err := s.Volume(t.Context(), image.VolumeRequest{ContainerID: "c", Index: 2, ImageID: img.ID})
	if err != nil {
		t.Fatal(err)
	}
	checkFile(t, path+"/bin/app", "x")
	if err := os.WriteFile(path+"/new", nil, 0o600); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("write to an image volume = %v, want an error for a read-only filesystem", err)
	}
	negative := image.VolumeRequest{ContainerID: "c", Index: -1, ImageID: img.ID}
	if _, err := s.Volume(t.Context(), negative); !errdefs.IsInvalidArgument(err) {
		t.Errorf("Volume with index -1 = %v, want an invalid argument", err)
	}
}

// TestNoQuota: on a filesystem without project quotas no writable layer is made, and nothing is left of it.
// rootfs.TestQuota uses one that has them.
func TestNoQuota(t *testing.T) {
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	cfg := config(t, reg.host)
	cfg.MaxWritableBytes = 1 << 20
	if image.QuotaCheck(cfg.Config)(t.TempDir()) == nil {
		t.Skip("the filesystem of the temporary directory has project quotas")
	}
	s := open(t, cfg)
	img := pull(t, s, reg.host+"/app:v1")
	_, err := s.Rootfs(t.Context(), image.RootfsRequest{ContainerID: "c", ImageID: img.ID})
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "image.max_writable_bytes") {
		t.Errorf("Rootfs = %v, want a failed precondition that names the key", err)
	}
	if left, err := s.ContainersWithMounts(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	volume := image.VolumeRequest{ContainerID: "c", ImageID: img.ID}
	if _, err := s.Volume(t.Context(), volume); err != nil {
		t.Errorf("a volume, which needs none: %v", err)
	}
}

func TestImageWithoutLayers(t *testing.T) {
	reg := newRegistry(t)
	reg.push(t, "empty:v1", craft(t, nil))
	s := open(t, diskConfig(t, reg.host))
	img := pull(t, s, reg.host+"/empty:v1")
	path := rootfs(t, s, "c", img.ID)
	checkNoFiles(t, path)
	writeFile(t, path+"/new", "works")
	volume, err := s.Volume(t.Context(), image.VolumeRequest{ContainerID: "c", ImageID: img.ID})
	if err != nil {
		t.Fatal(err)
	}
	checkNoFiles(t, volume)
	ids := []specs.LinuxIDMapping{{HostID: 100000, Size: 65536}}
	shifted := image.RootfsRequest{ContainerID: "u", ImageID: img.ID, UIDs: ids, GIDs: ids}
	if _, err := s.Rootfs(t.Context(), shifted); err != nil {
		t.Error(err)
	}
}

// TestManyLayers mounts more layers than one page of mount parameters can hold.
func TestManyLayers(t *testing.T) {
	const layers = 60
	var trees []tree
	for i := range layers {
		trees = append(trees, tree{fmt.Sprintf("f%d", i): fmt.Sprint(i), "last": fmt.Sprint(i)})
	}
	reg := newRegistry(t)
	reg.push(t, "deep:v1", craft(t, nil, trees...))
	s := open(t, diskConfig(t, reg.host))
	img := pull(t, s, reg.host+"/deep:v1")
	ids := []specs.LinuxIDMapping{{HostID: 100000, Size: 65536}}
	for name, r := range map[string]image.RootfsRequest{"plain": {}, "userns": {UIDs: ids, GIDs: ids}} {
		r.ContainerID, r.ImageID = name, img.ID
		path, err := s.Rootfs(t.Context(), r)
		if err != nil {
			t.Fatalf("%s: Rootfs = %v, want no error", name, err)
		}
		checkFile(t, path+"/f0", "0")
		checkFile(t, path+"/f30", "30")
		checkFile(t, path+"/last", fmt.Sprint(layers-1))
	}
}

// TestUserNamespaceCopiesNothing: the layers keep their owners, the container sees shifted ones.
func TestUserNamespaceCopiesNothing(t *testing.T) {
	reg := newRegistry(t)
	reg.push(t, "app:v1", craft(t, nil, tree{"big": strings.Repeat("x", 1<<20), "dir/": ""}))
	cfg := diskConfig(t, reg.host)
	s := open(t, cfg)
	img := pull(t, s, reg.host+"/app:v1")
	before := owners(t, filepath.Join(cfg.Root, "overlay"))
	uids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 300000, Size: 1000},
		{ContainerID: 1000, HostID: 500000, Size: 1000}}
	gids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 400000, Size: 65536}}
	path, err := s.Rootfs(t.Context(), image.RootfsRequest{ContainerID: "c", ImageID: img.ID, UIDs: uids, GIDs: gids})
	if err != nil {
		t.Fatal(err)
	}
	volume, err := s.Volume(t.Context(), image.VolumeRequest{ContainerID: "c", ImageID: img.ID, UIDs: uids, GIDs: gids})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, path + "/big", path + "/dir", volume, volume + "/big"} {
		checkOwner(t, p, 300000, 400000)
	}
	// The upper directory and the files in it have the host's ids.
	if err := os.Chmod(path+"/big", 0o600); err != nil {
		t.Fatal(err)
	}
	checkOwner(t, path+"/big", 300000, 400000)
	if after := owners(t, filepath.Join(cfg.Root, "overlay")); !slices.Equal(before, after) {
		t.Errorf("owners of the layers changed from\n%v\nto\n%v", before, after)
	}
	upper := s.UpperDir("c")
	if entries, err := os.ReadDir(upper); err != nil || len(entries) != 1 {
		t.Errorf("upper directory = %v, %v, want one entry", entries, err)
	}
}

// owners lists all files below dir with their owners, except for the mount program's marker and temporary files.
func owners(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		out = append(out, fmt.Sprintf("%s %d:%d", path, st.Uid, st.Gid))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func checkOwner(t *testing.T, path string, uid, gid uint32) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Error(err)
		return
	}
	if st := info.Sys().(*syscall.Stat_t); st.Uid != uid || st.Gid != gid {
		t.Errorf("%s belongs to %d:%d, want %d:%d", path, st.Uid, st.Gid, uid, gid)
	}
}

// TestOnlyTheContainerGetsIn: the root of the user namespace reaches its files, another user does not, and neither
// reaches the layers, which may hold set-uid programs.
func TestOnlyTheContainerGetsIn(t *testing.T) {
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	cfg := diskConfig(t, reg.host)
	s := open(t, cfg)
	img := pull(t, s, reg.host+"/app:v1")
	ids := []specs.LinuxIDMapping{{HostID: 300000, Size: 65536}}
	mapped, err := s.Rootfs(t.Context(), image.RootfsRequest{ContainerID: "mapped", ImageID: img.ID, UIDs: ids, GIDs: ids})
	if err != nil {
		t.Fatal(err)
	}
	plain := rootfs(t, s, "plain", img.ID)
	layers, err := filepath.Glob(filepath.Join(cfg.Root, "overlay/*/diff/bin/app"))
	if err != nil || len(layers) != 1 {
		t.Fatalf("layers = %v, %v, want one", layers, err)
	}
	for dir, want := range map[string]os.FileMode{".": 0o711, "rootfs": 0o711, "overlay": 0o700, "tmp": 0o700,
		"cache": 0o700} {
		if info, err := os.Stat(filepath.Join(cfg.Root, dir)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want mode %o", dir, info, err, want)
		}
	}
	for _, c := range []struct {
		who  int
		path string
		want bool
	}{
		{300000, mapped + "/bin/app", true},
		{300001, mapped + "/bin/app", false},
		{300000, plain + "/bin/app", false},
		{300000, layers[0], false},
		{1000, mapped + "/bin/app", false},
		{1000, plain + "/bin/app", false},
		{1000, layers[0], false},
	} {
		if got := canRead(t, c.who, c.path); got != c.want {
			t.Errorf("user %d reads %s: %v, want %v", c.who, c.path, got, c.want)
		}
	}
}

// canRead tries to read as a uid and gid, in a process of its own.
func canRead(t *testing.T, who int, path string) bool {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	attr := &os.ProcAttr{
		Sys:   &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(who), Gid: uint32(who)}},
		Files: []*os.File{null, null, null},
	}
	p, err := os.StartProcess("/bin/cat", []string{"cat", path}, attr)
	if err != nil {
		t.Fatal(err)
	}
	state, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return state.Success()
}

func TestClosedParentOfUserNamespace(t *testing.T) {
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	cfg := diskConfig(t, reg.host)
	s := open(t, cfg)
	img := pull(t, s, reg.host+"/app:v1")
	closed := filepath.Dir(cfg.Root)
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	ids := []specs.LinuxIDMapping{{HostID: 300000, Size: 65536}}
	_, err := s.Rootfs(t.Context(), image.RootfsRequest{ContainerID: "c", ImageID: img.ID, UIDs: ids, GIDs: ids})
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), closed) {
		t.Errorf("error %v, want failed precondition that names %s", err, closed)
	}
	noRoot := []specs.LinuxIDMapping{{ContainerID: 1, HostID: 300000, Size: 65535}}
	_, err = s.Rootfs(t.Context(), image.RootfsRequest{ContainerID: "c", ImageID: img.ID, UIDs: noRoot, GIDs: noRoot})
	if !errdefs.IsInvalidArgument(err) {
		t.Errorf("Rootfs without a mapping of root = %v, want an invalid argument", err)
	}
	if held, err := s.ContainersWithMounts(t.Context()); err != nil || len(held) != 0 {
		t.Errorf("ContainersWithMounts after failures = %v, %v, want none", held, err)
	}
	rootfs(t, s, "c", img.ID)
}

// TestReleaseWhileInUse: a process with its working directory in the root filesystem does not prevent the release.
func TestReleaseWhileInUse(t *testing.T) {
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	s := open(t, config(t, reg.host))
	path := rootfs(t, s, "c", pull(t, s, reg.host+"/app:v1").ID)
	f, err := os.Open(path + "/bin/app")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// Further mounts in it and on it.
	if err := os.Mkdir(path+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{path + "/sub", path, path} {
		if err := unix.Mount("tmpfs", target, "tmpfs", 0, "size=64k"); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Release(t.Context(), "c"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Dir(filepath.Dir(path))); !os.IsNotExist(err) {
		t.Errorf("Lstat of the container's directory = %v, want not found", err)
	}
}

// TestVolatile: fsync in a container is a no-op.
func TestVolatile(t *testing.T) {
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	s := open(t, config(t, reg.host))
	path := rootfs(t, s, "c", pull(t, s, reg.host+"/app:v1").ID)
	if options := mountOptions(t, path); !strings.Contains(options, "volatile") {
		t.Errorf("mount options %q, want volatile", options)
	}
}

// mountOptions returns the line of mountinfo for a mount.
func mountOptions(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if strings.Fields(line)[4] == path {
			return line
		}
	}
	t.Fatalf("%s is not mounted", path)
	return ""
}

// TestLongRoot: paths longer than the limit of a mount parameter.
func TestLongRoot(t *testing.T) {
	reg := newRegistry(t)
	reg.push(t, "app:v1", craft(t, nil, tree{"a": "1"}, tree{"b": "2"}))
	cfg := diskConfig(t, reg.host)
	long := filepath.Join(filepath.Dir(cfg.Root), strings.Repeat("long/", 50))
	if err := os.MkdirAll(long, 0o755); err != nil {
		t.Fatal(err)
	}
	cfg.Root = filepath.Join(long, "s")
	s := open(t, cfg)
	img := pull(t, s, reg.host+"/app:v1")
	ids := []specs.LinuxIDMapping{{HostID: 100000, Size: 65536}}
	for name, r := range map[string]image.RootfsRequest{"plain": {}, "userns": {UIDs: ids, GIDs: ids}} {
		r.ContainerID, r.ImageID = name, img.ID
		path, err := s.Rootfs(t.Context(), r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		checkFile(t, path+"/a", "1")
		writeFile(t, path+"/written", "x")
	}
}

// TestFailedRootfsLeavesNothing: no directory, no mount, and no reference to the image.
func TestFailedRootfsLeavesNothing(t *testing.T) {
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	cfg := config(t, reg.host)
	s := open(t, cfg)
	img := pull(t, s, reg.host+"/app:v1")
	layers, err := filepath.Glob(filepath.Join(cfg.Root, "overlay/*/diff"))
	if err != nil || len(layers) != 1 {
		t.Fatalf("layers = %v, %v, want one", layers, err)
	}
	if err := os.Rename(layers[0], layers[0]+"-away"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Rootfs(t.Context(), image.RootfsRequest{ContainerID: "c", ImageID: img.ID}); err == nil {
		t.Fatal("made a root filesystem without its layer")
	}
	if _, err := s.Volume(t.Context(), image.VolumeRequest{ContainerID: "c", ImageID: img.ID}); err == nil {
		t.Fatal("made a volume without its layer")
	}
	checkNoFiles(t, filepath.Join(cfg.Root, "rootfs"))
	if err := os.Rename(layers[0]+"-away", layers[0]); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), img.ID); err != nil {
		t.Error(err)
	}
}
