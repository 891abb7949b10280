package snapshot

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/archive"
)

// dumper writes an image for each container, and whatever spoil does.
type dumper struct {
	oci.Dumper
	spoil func(dir string) error
	shm   string // its archive
	room  *int64 // set to that of the containers
}

func (d dumper) Dump(ctx context.Context, containers []oci.Dumped, frozen func(context.Context) error) error {
	for _, c := range containers {
		if d.room != nil {
			*d.room = c.Room
		}
		err := errors.Join(os.Mkdir(filepath.Join(c.Dir, oci.DumpImages), 0o700),
			os.WriteFile(filepath.Join(c.Dir, oci.DumpImages, "core-1.img"), []byte(c.ID), 0o644),
			os.WriteFile(filepath.Join(c.Dir, oci.DumpLog), nil, 0o644))
		if err == nil && d.spoil != nil {
			err = d.spoil(c.Dir)
		}
		if err != nil {
			return err
		}
	}
	return frozen(ctx)
}

// dump makes a checkpoint of KindCRIU with the containers web and a/../b.
func dump(t testing.TB, dir string, key *Key, d dumper) error {
	t.Helper()
	return dumpStaged(t, dir, filepath.Join(t.TempDir(), "staging"), key, d)
}

// dumpStaged has the runtime write to staging, of which nothing may be left.
func dumpStaged(t testing.TB, dir, staging string, key *Key, d dumper) error {
	t.Helper()
	w, err := Create(dir, KindCRIU, staging)
	must(t, err)
	defer func() {
		must(t, w.Close())
		if _, err := os.Lstat(staging); err == nil {
			t.Errorf("%s exists, want it removed", staging)
		}
	}()
	var sources []Source
	m := manifest(t)
	for _, name := range []string{"web", "a/../b"} {
		sources = append(sources, Source{Name: name, ID: "id of " + name, Diff: func(_ context.Context, w io.Writer) error {
			_, err := io.WriteString(w, "layer of "+name)
			return err
		}})
		if m.Container(name) == nil {
			m.Containers = append(m.Containers, Container{name, "2222", m.Containers[0].Config})
		}
	}
	err = w.Dump(t.Context(), d, sources, archive.Shm{
		Unused: func() (bool, error) { return d.shm == "", nil },
		Save:   func(_ context.Context, w io.Writer) error { _, err := io.WriteString(w, d.shm); return err },
	})
	if err == nil {
		err = w.Commit(t.Context(), m, key)
	}
	if err != nil {
		err = errors.Join(err, w.Discard())
		if left := files(t, dir); len(left) > 0 {
			t.Errorf("left after Discard: %q, want nothing", left)
		}
	}
	return err
}

func TestDump(t *testing.T) {
	dir, key := output(t), newKey(t)
	must(t, dump(t, dir, key, dumper{}))
	want := []string{
		"drwx------ criu",
		"drwx------ criu/container-a%2F..%2Fb", "drwx------ criu/container-a%2F..%2Fb/checkpoint",
		"-rw------- criu/container-a%2F..%2Fb/checkpoint/core-1.img",
		"-rw------- criu/container-a%2F..%2Fb/dump.log", "-rw------- criu/container-a%2F..%2Fb/rootfs-diff.tar",
		"drwx------ criu/container-web", "drwx------ criu/container-web/checkpoint",
		"-rw------- criu/container-web/checkpoint/core-1.img",
		"-rw------- criu/container-web/dump.log", "-rw------- criu/container-web/rootfs-diff.tar",
		"-rw------- manifest.hmac", "-rw------- manifest.json",
	}
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("files = %q, want %q", got, want)
	}
	s, err := Open(dir, Trust{Key: key})
	must(t, err)
	to := filepath.Join(t.TempDir(), "staged")
	must(t, s.Stage(t.Context(), to))
	for path, want := range map[string]string{
		filepath.Join(Images(to, KindCRIU, "web"), "core-1.img"): "id of web",
		string(Rootfs(to, "a/../b")):                             "layer of a/../b",
	} {
		if data, err := os.ReadFile(path); err != nil || string(data) != want {
			t.Errorf("%s = %q, %v, want %q", path, data, err, want)
		}
	}
	if got := Images(to, KindGVisor, "web"); got != to {
		t.Errorf("images of gVisor = %s, want %s", got, to)
	}
	if _, err := Open(dir, Trust{Key: newKey(t), Foreign: true}); !errdefs.IsPermissionDenied(err) {
		t.Errorf("Open of images of CRIU with another node's seal = %v, want %v", err, errdefs.ErrPermissionDenied)
	}
}

// TestDumpOfShm: the files in /dev/shm are in an archive of their own, if there are any.
func TestDumpOfShm(t *testing.T) {
	for _, content := range []string{"", "archive"} {
		dir, key := output(t), newKey(t)
		must(t, dump(t, dir, key, dumper{shm: content}))
		s, err := Open(dir, Trust{Key: key})
		must(t, err)
		to := filepath.Join(t.TempDir(), "staged")
		must(t, s.Stage(t.Context(), to))
		var got []byte
		if layer := s.ShmArchive(to); layer != "" {
			must(t, layer.Read(func(r io.Reader, _ int64) (err error) { got, err = io.ReadAll(r); return err }))
		}
		if string(got) != content {
			t.Errorf("archive = %q, want %q", got, content)
		}
	}
}

// TestDumpToAnotherDisk: the same files are there when they had to be copied from another filesystem, and hostile ones
// are refused.
func TestDumpToAnotherDisk(t *testing.T) {
	disk := otherDisk(t, "")
	var want, got []string
	for _, dir := range []string{filepath.Join(disk, "same"), output(t)} {
		if err := os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
			must(t, err)
		}
		must(t, dumpStaged(t, dir, filepath.Join(disk, "staging"), newKey(t), dumper{shm: "archive"}))
		want, got = got, files(t, dir)
	}
	if !slices.Equal(got, want) {
		t.Errorf("files on another disk = %q, want %q", got, want)
	}
	err := dumpStaged(t, output(t), filepath.Join(disk, "staging"), newKey(t), dumper{spoil: func(dir string) error {
		return os.Symlink("/etc/passwd", dir+"/checkpoint/pages-1.img")
	}})
	if !errdefs.IsInvalidArgument(err) {
		t.Errorf("dump with a link = %v, want %v", err, errdefs.ErrInvalidArgument)
	}
}

// otherDisk mounts a filesystem.
func otherDisk(t *testing.T, options string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a disk")
	}
	dir := output(t)
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700"+options))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// TestDumpToSmallDisk: Dump gets the free space of the destination as Room. If the files together do not fit there,
// none is copied, even if each one would fit.
func TestDumpToSmallDisk(t *testing.T) {
	dir, staging := otherDisk(t, ",size=1m"), filepath.Join(t.TempDir(), "staging")
	var room int64
	err := dumpStaged(t, dir, staging, newKey(t), dumper{room: &room, spoil: func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "checkpoint", "pages-1.img"), make([]byte, 300<<10), 0o600)
	}})
	if !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "of 6") { // two containers, 600 KiB
		t.Errorf("dump = %v, want %v with the size of all files", err, errdefs.ErrResourceExhausted)
	}
	if room <= 0 || room > 512<<10 {
		t.Errorf("the runtime was told of room for %d bytes, want half of the disk", room)
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("%v is left, want nothing", left)
	}
}

// TestDiscardFreesOwnDisk: podd's own disk is free when the checkpoint has failed, although the caller's directory
// cannot be emptied.
func TestDiscardFreesOwnDisk(t *testing.T) {
	dir, staging := otherDisk(t, ""), filepath.Join(t.TempDir(), "staging")
	w, err := Create(dir, KindCRIU, staging)
	must(t, err)
	defer w.Close()
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	if err := w.Discard(); !errors.Is(err, unix.EROFS) {
		t.Errorf("Discard = %v, want %v", err, unix.EROFS)
	}
	if _, err := os.Lstat(staging); err == nil {
		t.Errorf("%s exists, want it removed", staging)
	}
}

// TestOwnDiskIsFreeBeforeTheManifest: when there is a checkpoint, podd's own disk has nothing of it, and no error of
// its removal can follow.
func TestOwnDiskIsFreeBeforeTheManifest(t *testing.T) {
	for name, disk := range map[string]string{"same disk": t.TempDir(), "another disk": otherDisk(t, "")} {
		staging := filepath.Join(disk, "staging")
		w, err := Create(output(t), KindCRIU, staging)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(staging, "x"), nil, 0o600))
		must(t, w.moveStaged(t.Context()))
		if _, err := os.Lstat(staging); err == nil {
			t.Errorf("%s: %s exists, want it removed", name, staging)
		}
		must(t, errors.Join(w.Discard(), w.Close()))
	}
}

// TestHostileDump: whatever the runtime leaves, a checkpoint has regular files of known names, or there is none.
func TestHostileDump(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"link":         func(d string) error { return os.Symlink("/etc/passwd", d+"/checkpoint/pages-1.img") },
		"FIFO":         func(d string) error { return unix.Mkfifo(d+"/checkpoint/pages-1.img", 0o600) },
		"unknown file": func(d string) error { return os.WriteFile(d+"/other", nil, 0o600) },
		"directory in the images": func(d string) error {
			return errors.Join(os.Mkdir(d+"/checkpoint/x", 0o700), os.WriteFile(d+"/checkpoint/x/y", nil, 0o600))
		},
		"layer": func(d string) error { return os.Symlink("/tmp/x", d+"/rootfs-diff.tar") },
		"error": func(string) error { return errors.New("broken") },
	} {
		if err := dump(t, output(t), newKey(t), dumper{spoil: spoil}); err == nil {
			t.Errorf("%s: no error, want one", name)
		}
	}
}

// TestCRIUNames: a manifest whose names lead elsewhere is refused.
func TestCRIUNames(t *testing.T) {
	layer := "container-web/rootfs-diff.tar"
	m := Manifest{Format: format, Kind: KindCRIU, Containers: []Container{{Name: "web"}}}
	check := func(names ...string) error {
		m.Files = nil
		for _, name := range names {
			m.Files = append(m.Files, File{Name: name})
		}
		return m.check()
	}
	if err := check(layer, shmName, "container-web/checkpoint/core-1.img"); err != nil {
		t.Errorf("check = %v, want nil", err)
	}
	if err := check(layer, shmName, shmName); err == nil {
		t.Error("check with an archive twice = nil, want an error")
	}
	for _, name := range []string{
		"", "x", "/etc/passwd", "../container-web/x", "container-web", "container-web/x", "container-web/../x",
		"container-other/rootfs-diff.tar", "container-web/checkpoint", "container-web/checkpoint/", layer,
		"container-web/checkpoint/..", "container-web/checkpoint/../../x", "container-web/checkpoint/a/b",
		"container-web//checkpoint/a", "container-web/./dump.log",
	} {
		if err := check(layer, name); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%q: check = %v, want %v", name, err, errdefs.ErrFailedPrecondition)
		}
	}
	err := check("container-web/dump.log")
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "layer") {
		t.Errorf("check without a layer = %v, want an error about it", err)
	}
}

// TestCheckCRIU: what CRIU could not restore in another pod is refused before anything is frozen.
func TestCheckCRIU(t *testing.T) {
	for _, tt := range []struct {
		change func(p *cri.NamespaceOption, c *cri.ContainerConfig)
		want   string // words of the error, "" for none
	}{
		{func(*cri.NamespaceOption, *cri.ContainerConfig) {}, ""},
		{func(p *cri.NamespaceOption, _ *cri.ContainerConfig) { p.Pid = cri.NamespaceMode_POD }, "PID namespace"},
		{func(p *cri.NamespaceOption, c *cri.ContainerConfig) {
			p.Pid = cri.NamespaceMode_POD
			c.Linux = pidMode(cri.NamespaceMode_CONTAINER)
		}, ""},
		{func(_ *cri.NamespaceOption, c *cri.ContainerConfig) { c.Linux = pidMode(cri.NamespaceMode_NODE) },
			"PID namespace"},
		{func(_ *cri.NamespaceOption, c *cri.ContainerConfig) { c.Linux = pidMode(cri.NamespaceMode_TARGET) },
			"PID namespace"},
		{func(p *cri.NamespaceOption, _ *cri.ContainerConfig) { p.Network = cri.NamespaceMode_NODE }, "network of the node"},
		{func(p *cri.NamespaceOption, _ *cri.ContainerConfig) { p.Ipc = cri.NamespaceMode_NODE }, "IPC namespace"},
		{func(p *cri.NamespaceOption, _ *cri.ContainerConfig) {
			p.UsernsOptions = &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: []*cri.IDMapping{{HostId: 1, Length: 1}}}
		}, "a user namespace"},
	} {
		pod, c := &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}, config("web")
		tt.change(pod, c)
		err := CheckCRIU(&cri.PodSandboxConfig{Linux: &cri.LinuxPodSandboxConfig{
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: pod},
		}}, c)
		if tt.want == "" && err != nil ||
			tt.want != "" && (!errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("CheckCRIU = %v, want %q", err, tt.want)
		}
	}
}

func pidMode(mode cri.NamespaceMode) *cri.LinuxContainerConfig {
	return &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{
		NamespaceOptions: &cri.NamespaceOption{Pid: mode},
	}}
}
