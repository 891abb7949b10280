package rootfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// quotaDisk is the disk with project quotas, in the guest that TestQuota starts.
const quotaDisk = "PODD_QUOTA_DISK"

// TestQuota uses project quotas of a real filesystem, in User-Mode Linux: many kernels are built without them.
func TestQuota(t *testing.T) {
	if os.Getenv(quotaDisk) != "" {
		quotaInGuest(t)
		return
	}
	for fs, mkfs := range map[string][]string{
		"ext4": {"mkfs.ext4", "-q", "-O", "project,quota", "-E", "quotatype=prjquota"},
		"xfs":  {"mkfs.xfs", "-q"},
	} {
		t.Run(fs, func(t *testing.T) {
			if _, err := exec.LookPath(mkfs[0]); err != nil {
				t.Skip(err)
			}
			root := quotaGuest(t)
			disk := filepath.Join(root, "disk")
			if err := errors.Join(os.WriteFile(disk, nil, 0o600), os.Truncate(disk, 400<<20)); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(mkfs[0], append(mkfs[1:], disk)...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			bootQuotaGuest(t, root, fs)
		})
	}
}

// quotaGuest makes a directory with the kernel, its libraries and this program.
func quotaGuest(t *testing.T) string {
	t.Helper()
	guest, root := "../../bin/vm/uml", t.TempDir()
	if _, err := os.Stat(guest); err != nil {
		t.Skipf("make vm: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	modules, _ := filepath.Glob(filepath.Join(vmKernels(), "uml-*/usr/lib/uml/modules/*/kernel/fs"))
	if len(modules) == 0 {
		t.Skip("make vm: no modules of User-Mode Linux")
	}
	for _, c := range [][2]string{
		{guest + "/.", ""}, {self, "test"}, {modules[0] + "/quota", "modules"},
		{modules[0] + "/overlayfs/overlay.ko", "modules"},
	} {
		if out, err := exec.Command("cp", "-a", c[0], filepath.Join(root, c[1])).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, dir := range []string{"proc", "dev", "tmp", "mnt"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The kernel looks for its own program there.
	if err := unix.Mount("proc", filepath.Join(root, "proc"), "proc", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(filepath.Join(root, "proc"), unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return root
}

func vmKernels() string {
	cache := os.Getenv("PODD_CACHE")
	if cache == "" {
		home, _ := os.UserCacheDir()
		cache = filepath.Join(home, "podd")
	}
	return filepath.Join(cache, "vm-kernel")
}

// bootQuotaGuest runs this program as process 1 of a kernel whose root is a directory.
func bootQuotaGuest(t *testing.T, root, fs string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/kernel", "mem=512M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw",
		"init=/test", "ubd0=/disk", "con=null", "con0=fd:0,fd:1", "ssl=null", "panic=-1", "quiet",
		quotaDisk+"="+fs, "HOME=/tmp", "--", "-test.v", "-test.run=^"+t.Name()[:len("TestQuota")]+"$")
	cmd.Env = []string{"TMPDIR=/tmp", "HOME=/tmp"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Setsid: true}
	cmd.Dir, cmd.WaitDelay = "/", 10*time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil || !strings.Contains(string(out), "all subtests passed") {
		t.Errorf("%v, %v:\n%s", err, ctx.Err(), out)
	}
	t.Logf("%s", out)
}

// quotaInGuest is process 1 of the guest.
func quotaInGuest(t *testing.T) {
	defer func() {
		if !t.Failed() {
			fmt.Println("all subtests passed")
		}
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	}()
	fs := os.Getenv(quotaDisk)
	for _, name := range []string{"quota_tree", "quota_v2", "overlay"} {
		if f, err := os.Open("/modules/" + name + ".ko"); err != nil {
			t.Fatal(err)
		} else if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil {
			t.Fatal(name, err)
		}
	}
	for _, m := range []struct{ dev, dir, fs, data string }{
		{"proc", "/proc", "proc", ""}, {"dev", "/dev", "devtmpfs", ""}, {"tmp", "/tmp", "tmpfs", ""},
		{"/dev/ubda", "/mnt", fs, "prjquota"},
	} {
		if err := unix.Mount(m.dev, m.dir, m.fs, 0, m.data); err != nil && !errors.Is(err, unix.EBUSY) {
			t.Fatal(m.dir, err)
		}
	}
	for name, test := range map[string]func(*testing.T, *quotaNode){
		"bytes": boundedBytes, "files": boundedFiles, "usage": usageIsWalked, "crash": crashedRelease,
		"evasion": evadedQuota,
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("/mnt", name)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			test(t, &quotaNode{
				Mounts: New(dir, dir, func(string) bool { return true }, logrus.New()), layers: layersOnDisk(t, t.TempDir(), 2),
			})
		})
	}
}

// quotaNode makes root filesystems in a directory of the disk.
type quotaNode struct {
	*Mounts
	layers []string
}

const quotaBytes = 8 << 20

// make returns the mount of a new container, and the id of its project.
func (n *quotaNode) make(t *testing.T, container string) (string, uint32) {
	t.Helper()
	path, err := n.Make(t.Context(), Request{
		Container: container, Name: Root, Image: "i", Layers: n.layers, Writable: true, MaxBytes: quotaBytes,
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := readRecord(filepath.Join(n.containerDir(container), Root))
	if err != nil || r.Project < firstProject {
		t.Fatalf("record %+v, %v", r, err)
	}
	return path, r.Project
}

// boundedBytes: a container gets EDQUOT, others do not; a removed container leaves no limit.
func boundedBytes(t *testing.T, n *quotaNode) {
	one, project := n.make(t, "one")
	two, other := n.make(t, "two")
	if project == other {
		t.Errorf("both have project %d", project)
	}
	written, err := fill(filepath.Join(one, "f0")) // of a layer
	if !isOverQuota(err) || written > quotaBytes || written < quotaBytes*9/10 {
		t.Errorf("wrote %d, %v, want %d and EDQUOT", written, err, quotaBytes)
	}
	if _, err := fill(filepath.Join(one, "more")); !isOverQuota(err) {
		t.Errorf("a second file: %v, want EDQUOT", err)
	}
	if err := os.WriteFile(filepath.Join(two, "f"), make([]byte, quotaBytes/2), 0o600); err != nil {
		t.Errorf("the other container: %v", err)
	}
	for _, id := range []string{"one", "two"} {
		if err := n.Release(id); err != nil {
			t.Error(err)
		}
	}
	checkFree(t, n, project)
	checkFree(t, n, other)
}

// boundedFiles: empty files are bounded too.
func boundedFiles(t *testing.T, n *quotaNode) {
	root, _ := n.make(t, "one")
	for i := range quotaBytes/bytesPerFile + 1 {
		err := os.WriteFile(filepath.Join(root, fmt.Sprint(i)), nil, 0o600)
		if isOverQuota(err) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Error("no limit of files")
}

// usageIsWalked: the usage counts files outside of the project, too. The filesystem has the limit's size.
func usageIsWalked(t *testing.T, n *quotaNode) {
	root, project := n.make(t, "one")
	dir := filepath.Join(root, "d")
	if err := errors.Join(os.Mkdir(dir, 0o700), setProject(dir, 0)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	unix.Sync()
	n.writable.measureOne(t.Context(), "one")
	if u, ok := n.Writable("one"); !ok || u.Bytes < 1<<20 {
		t.Errorf("usage %+v, %v, want that of the file", u, ok)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(root, &fs); err != nil || fs.Blocks*uint64(fs.Bsize) != quotaBytes {
		t.Errorf("size of the filesystem %d, %v, want %d", fs.Blocks*uint64(fs.Bsize), err, quotaBytes)
	}
	if u, err := n.quota.usage(project); err != nil || u.HardLimit != quotaBytes/quotaBlock {
		t.Errorf("limit %+v, %v", u, err)
	}
}

// crashedRelease: a release that a crash interrupted leaves no limit after the next start, nor does a second Make.
func crashedRelease(t *testing.T, n *quotaNode) {
	_, first := n.make(t, "one")
	_, second := n.make(t, "one")
	checkFree(t, n, first)
	if err := os.Rename(n.containerDir("one"), filepath.Join(n.dir, trashPrefix+"one")); err != nil {
		t.Fatal(err)
	}
	if err := n.Recover(); err != nil {
		t.Fatal(err)
	}
	checkFree(t, n, second)
}

// evadedQuota: the owner of a directory in a user namespace cannot take it out of the project.
func evadedQuota(t *testing.T, n *quotaNode) {
	const id = 100_000
	root, _ := n.make(t, "one")
	dir := filepath.Join(root, "mine")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, id, id)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(n.containerDir("one"), 0o755), os.Chmod(filepath.Dir(root), 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/test", "-test.run=^TestSetProject$", "-test.v")
	cmd.Env = []string{"PODD_PROJECT_OF=" + dir, "TMPDIR=/tmp"}
	ids := []syscall.SysProcIDMap{{HostID: id, Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, Credential: &syscall.Credential{},
	}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "refused") {
		t.Errorf("%v: %s, want that the kernel refuses it", err, out)
	}
}

// TestSetProject is a process of evadedQuota.
func TestSetProject(t *testing.T) {
	dir := os.Getenv("PODD_PROJECT_OF")
	if dir == "" {
		t.Skip("a process of TestQuota")
	}
	if err := setProject(dir, 0); errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) {
		t.Log("refused:", err)
	} else {
		t.Error("set the project:", err)
	}
}

// fill writes to a file until an error, and returns how many bytes fit.
func fill(path string) (written int64, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return io.CopyBuffer(struct{ io.Writer }{f}, io.LimitReader(zeros{}, 4*quotaBytes), make([]byte, 64<<10))
}

// isOverQuota reports whether err is that of a limit; XFS calls a full project a full disk.
func isOverQuota(err error) bool {
	return errors.Is(err, unix.EDQUOT) || os.Getenv(quotaDisk) == "xfs" && errors.Is(err, unix.ENOSPC)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// checkFree fails unless a project soon has neither files nor limits. XFS frees inodes in the background.
func checkFree(t *testing.T, n *quotaNode, project uint32) {
	t.Helper()
	var u projectUsage
	var err error
	for range 200 {
		if u, err = n.quota.usage(project); err == nil && u == (projectUsage{Valid: u.Valid}) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("left of project %d: %+v, %v", project, u, err)
}
