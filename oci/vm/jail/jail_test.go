package jail

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	MaybeInit()
	os.Exit(m.Run())
}

// newJail makes a jail in this process' network namespace. Needs root.
func newJail(t *testing.T) *Jail {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	return newJailOf(t, t.TempDir())
}

func newJailOf(t *testing.T, bundle string, more ...uintptr) *Jail {
	t.Helper()
	j, err := New(Config{
		Netns: "/proc/self/ns/net", Bundle: bundle, Memory: 1,
		Files: map[string]string{"/busybox": "/bin/busybox"}, Capabilities: append(FileCapabilities(), more...),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	return j
}

// run returns the output of a shell in the jail.
func run(t *testing.T, j *Jail, script string) string {
	t.Helper()
	cmd := exec.Command("/busybox", "sh", "-c", script)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := j.Start(cmd); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the output has the error
	return out.String()
}

// TestJailShowsNothingElse: a program in the jail sees its own files, and none of the host.
func TestJailShowsNothingElse(t *testing.T) {
	j := newJail(t)
	if got, want := run(t, j, "/busybox ls /"), "bundle\nbusybox\ndev\nproc\nshared\ntmp\n"; got != want {
		t.Errorf("the root has %q, want %q", got, want)
	}
	if got := run(t, j, "/busybox cat /proc/self/mounts"); strings.Contains(got, " /old") ||
		strings.Count(got, "podd-vm") != 4 {
		t.Errorf("mounts = %q, want four of the jail's own", got)
	}
	for _, write := range []string{"echo >/bundle/x", "echo >/busybox", "echo >/proc/sys/kernel/hostname"} {
		if got := run(t, j, write); !strings.Contains(got, "Read-only file system") {
			t.Errorf("%s: %q, want a read-only file system", write, got)
		}
	}
}

// TestJailHidesProcesses: a program in the jail sees itself, and no process of the host or of another jail, whatever
// the credentials of both.
func TestJailHidesProcesses(t *testing.T) {
	j, other := newJail(t), newJail(t)
	if err := other.Start(exec.Command("/busybox", "sleep", "1000")); err != nil {
		t.Fatal(err)
	}
	user := exec.Command("/bin/busybox", "sleep", "1000")
	user.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if err := user.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = user.Process.Kill(); _ = user.Wait() })
	const look = "cd /proc; for p in [0-9]*; do [ $p = $$ ] || echo process $p; done; /busybox ls self/status"
	for _, uid := range []uint32{0, 65534} {
		var out strings.Builder
		cmd := exec.Command("/busybox", "sh", "-c", look)
		cmd.Stdout, cmd.Stderr = &out, &out
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if err := j.Start(cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil || out.String() != "self/status\n" {
			t.Errorf("user %d sees %q, %v, want itself alone", uid, out.String(), err)
		}
	}
}

// TestJailForbidsHandles: who knows one file of a file system cannot open another one by its number.
func TestJailForbidsHandles(t *testing.T) {
	j := newJail(t)
	err := j.Do(func() error {
		handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, Shared, 0)
		if err != nil {
			return err
		}
		dir, err := unix.Open(Shared, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		fd, err := unix.OpenByHandleAt(dir, handle, unix.O_RDONLY|unix.O_CLOEXEC)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	})
	if !errors.Is(err, unix.EPERM) {
		t.Errorf("open_by_handle_at = %v, want %v", err, unix.EPERM)
	}
}

// TestJailForbidsOtherNumbers: those of x32, which mean the same calls, fail too.
func TestJailForbidsOtherNumbers(t *testing.T) {
	j := newJail(t)
	err := j.Do(func() error {
		const x32 = 0x40000000
		_, _, errno := unix.Syscall(x32|unix.SYS_OPEN_BY_HANDLE_AT, 0, 0, 0)
		return errno
	})
	if !errors.Is(err, unix.EPERM) {
		t.Errorf("open_by_handle_at of x32 = %v, want %v", err, unix.EPERM)
	}
}

// TestJailLimitsCapabilities: programs keep the capabilities for files, and cannot make devices or mounts.
func TestJailLimitsCapabilities(t *testing.T) {
	j := newJail(t)
	got := run(t, j, "/busybox grep CapEff /proc/self/status")
	if want := "CapEff:\t00000000800000db\n"; got != want {
		t.Errorf("capabilities = %q, want %q", got, want)
	}
	if got := run(t, j, "/busybox mknod /tmp/d b 8 0"); !strings.Contains(got, "not permitted") {
		t.Errorf("mknod: %q, want that it is not permitted", got)
	}
}

// TestDevicesOfTheGuest: a broken file server, which may make devices, can open none that it has made.
func TestDevicesOfTheGuest(t *testing.T) {
	newJail(t)
	j := newJailOf(t, t.TempDir(), unix.CAP_MKNOD)
	for _, dir := range []string{Shared, Temp, Memory} {
		got := run(t, j, "/busybox mknod "+dir+"/d c 1 5 && /busybox head -c 1 "+dir+"/d")
		if !strings.Contains(got, "Permission denied") {
			t.Errorf("device in %s: %q, want that it cannot be opened", dir, got)
		}
	}
	for _, dir := range []string{"", "/dev", Work} {
		if got := run(t, j, "/busybox mknod "+dir+"/d c 1 5"); !strings.Contains(got, "Read-only file system") {
			t.Errorf("device in %s/: %q, want a read-only file system", dir, got)
		}
	}
	if got := run(t, j, "/busybox head -c 1 /dev/zero | /busybox wc -c"); got != "1\n" {
		t.Errorf("bytes of /dev/zero = %q, want 1", got)
	}
}

// TestManyFilesOfTheGuest: the host does not remove files for as long as a guest makes new ones.
func TestManyFilesOfTheGuest(t *testing.T) {
	path := t.TempDir()
	const most = 1024
	for i := range most + 10*removedAtOnce {
		fd, err := unix.Open(filepath.Join(path, strconv.Itoa(i)), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd)
	}
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := removeFiles(dir, most); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(path); err != nil || len(left) == 0 {
		t.Errorf("%d files are left, %v, want those beyond the limit", len(left), err)
	}
}

// give gives a source to a container and returns its path in the jail.
func give(t *testing.T, j *Jail, id string, s Source) string {
	t.Helper()
	given, err := j.Share(id, s)
	if err != nil {
		t.Fatal(err)
	}
	return given.Path
}

// addContainers makes the directories of containers.
func addContainers(t *testing.T, j *Jail, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := j.AddContainer(id); err != nil {
			t.Fatal(err)
		}
	}
}

// TestShare: a container's sources appear while the jail is in use, follow the host, and are read-only if nobody may
// write them.
func TestShare(t *testing.T) {
	j := newJail(t)
	dir, other := t.TempDir(), t.TempDir()
	write(t, filepath.Join(dir, "f"), "one")
	write(t, filepath.Join(other, "f"), "other")
	addContainers(t, j, "c")
	if err := j.WriteConfig("c", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	writable := give(t, j, "c", Source{Path: dir})
	readOnly := give(t, j, "c", Source{Path: other, ReadOnly: true})
	file := give(t, j, "c", Source{Path: filepath.Join(dir, "f"), RecursiveReadOnly: true})
	got := run(t, j, "/busybox cat /shared/c/config.json "+writable+"/f "+readOnly+"/f "+file)
	if want := "{}oneotherone"; got != want {
		t.Errorf("content = %q, want %q", got, want)
	}
	for _, path := range []string{readOnly + "/f", file} {
		if got := run(t, j, "echo two >"+path); !strings.Contains(got, "Read-only file system") {
			t.Errorf("write to a read-only source: %q", got)
		}
	}
	run(t, j, "echo two >"+writable+"/f")
	if data, _ := os.ReadFile(filepath.Join(dir, "f")); string(data) != "two\n" {
		t.Errorf("the host has %q, want what the jail wrote", data)
	}
	if err := j.RemoveContainer("c"); err != nil {
		t.Fatal(err)
	}
	if got := run(t, j, "/busybox ls /shared /shared/"+sharesName); got != "/shared:\n\n/shared/"+sharesName+":\n" {
		t.Errorf("left: %q", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "f")); err != nil {
		t.Errorf("the host's file: %v", err)
	}
}

// TestShareIsOneForItsUsers: whoever has a source, and however often, has one mount, which stays until the last of them
// ends, and can be written while one of them may.
func TestShareIsOneForItsUsers(t *testing.T) {
	j := newJail(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "f"), "one")
	writes := Source{Path: dir}
	reads := Source{Path: dir, ReadOnly: true}
	addContainers(t, j, "a", "b", "c")
	path := give(t, j, "a", reads)
	for _, other := range []struct {
		id string
		s  Source
	}{{"b", writes}, {"b", writes}, {"b", reads}, {"c", writes}, {"c", Source{Path: dir, RecursiveReadOnly: true}}} {
		if got := give(t, j, other.id, other.s); got != path {
			t.Errorf("%s has the source at %s, want %s as the others", other.id, got, path)
		}
	}
	for _, step := range []struct {
		ends, want string
	}{{"c", "one\n"}, {"b", "one\nfailed\n"}, {"a", ""}} {
		if err := j.RemoveContainer(step.ends); err != nil {
			t.Fatal(err)
		}
		got := run(t, j, "cd "+path+" 2>/dev/null || exit; /busybox cat f; echo; (echo >x) 2>/dev/null || echo failed")
		if got != step.want {
			t.Errorf("after the end of %s: %q, want %q", step.ends, got, step.want)
		}
	}
	if len(j.shares) != 0 {
		t.Errorf("left: %v", j.shares)
	}
}

// TestShareOfAReadOnlyMount: what is read-only on the host stays so for a container that may write.
func TestShareOfAReadOnlyMount(t *testing.T) {
	j := newJail(t)
	dir := t.TempDir()
	if err := unix.Mount("test", dir, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	addContainers(t, j, "c")
	path := give(t, j, "c", Source{Path: dir})
	if got := run(t, j, "echo x >"+path+"/x"); !strings.Contains(got, "Read-only file system") {
		t.Errorf("write to a source that is read-only on the host: %q", got)
	}
}

// TestReadOnlySourceKeepsMountsBelow: read-only concerns the mount itself, and with RecursiveReadOnly those below.
func TestReadOnlySourceKeepsMountsBelow(t *testing.T) {
	j := newJail(t)
	dir := t.TempDir()
	below := filepath.Join(dir, "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("test", below, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(below, unix.MNT_DETACH) })
	if err := j.AddContainer("c"); err != nil {
		t.Fatal(err)
	}
	part := give(t, j, "c", Source{Path: dir, ReadOnly: true})
	whole := give(t, j, "c", Source{Path: dir, RecursiveReadOnly: true})
	give(t, j, "c", Source{Path: dir})
	if got := run(t, j, "echo x >"+part+"/x"); !strings.Contains(got, "Read-only file system") {
		t.Errorf("write to a read-only source: %q", got)
	}
	if got := run(t, j, "echo x >"+part+"/below/x"); got != "" {
		t.Errorf("write below a read-only source: %q, want success", got)
	}
	if got := run(t, j, "echo x >"+whole+"/below/y"); !strings.Contains(got, "Read-only file system") {
		t.Errorf("write below a recursively read-only source: %q", got)
	}
	if err := j.RemoveContainer("c"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(below, "x")); err != nil {
		t.Errorf("the mount on the host: %v, want it with the file", err)
	}
}

// TestShareRefuses: what a machine cannot have is refused by name, and a guest's link is not followed.
func TestShareRefuses(t *testing.T) {
	j := newJail(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := j.AddContainer("c"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, "/dev/null"} {
		_, err := j.Share("c", Source{Path: path})
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), path) {
			t.Errorf("Share(%s) = %v, want an invalid argument that names it", path, err)
		}
	}
	run(t, j, "cd /shared; /busybox mkdir other; /busybox ln -s other linked; /busybox ln -s /tmp "+sharesName+"/0")
	if err := j.AddContainer("linked"); err == nil {
		t.Error("AddContainer on a link of the guest = nil, want an error")
	}
	if _, err := j.Share("linked", Source{Path: t.TempDir()}); !errdefs.IsNotFound(err) {
		t.Errorf("Share through a link = %v, want that there is no such container", err)
	}
	if _, err := j.Share("c", Source{Path: t.TempDir()}); !errors.Is(err, unix.EEXIST) {
		t.Errorf("Share on a link = %v, want %v", err, unix.EEXIST)
	}
}

// TestGuestMovesDirectories: a guest that renames the directory of a container, and puts another one with mounts in its
// place, neither keeps the container's mounts nor has the host remove files of the other one.
func TestGuestMovesDirectories(t *testing.T) {
	j := newJail(t)
	gone, kept := t.TempDir(), t.TempDir()
	write(t, filepath.Join(gone, "f"), "gone")
	write(t, filepath.Join(kept, "f"), "kept")
	addContainers(t, j, "c", "other")
	give(t, j, "c", Source{Path: gone})
	path := filepath.Base(give(t, j, "other", Source{Path: kept}))
	run(t, j, "cd /shared; /busybox mv c moved; /busybox mv other c; /busybox mkdir -p moved/a/b; "+
		"/busybox mv "+sharesName+" elsewhere; /busybox mkdir -p "+sharesName+"/"+path)
	if err := j.RemoveContainer("c"); err != nil {
		t.Fatal(err)
	}
	if got := run(t, j, "/busybox cat /proc/self/mounts"); strings.Count(got, " /shared/") != 1 {
		t.Errorf("mounts = %q, want that of the other container alone", got)
	}
	if got := run(t, j, "/busybox cat /shared/elsewhere/"+path+"/f"); got != "kept" {
		t.Errorf("file of the other container = %q, want it kept", got)
	}
	if got := run(t, j, "/busybox find /shared/moved"); got != "/shared/moved\n/shared/moved/a\n/shared/moved/a/b\n" {
		t.Errorf("left = %q, want the guest's directories alone", got)
	}
}

// TestDeepDirectories: a guest that nests directories deeper than any path does not keep the host from removing a
// container.
func TestDeepDirectories(t *testing.T) {
	j := newJail(t)
	if err := j.AddContainer("c"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := j.Share("c", Source{Path: dir}); err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("d", 255)
	for depth := 0; depth < 2*unix.PathMax; depth += len(name) {
		// Each run begins where the last one has ended.
		run(t, j, "cd -P /shared/c; while cd -P "+name+"; do :; done; /busybox mkdir "+name)
	}
	if err := j.RemoveContainer("c"); err != nil {
		t.Errorf("RemoveContainer = %v, want success", err)
	}
	if got := run(t, j, "/busybox cat /proc/self/mounts"); strings.Contains(got, " /shared/") {
		t.Errorf("mounts = %q, want none of the container", got)
	}
}

// TestMountsOfTheJail: mounts below those that the programs get are read-only, too, and what the guest gets has no
// devices of the host and no set-user-ID programs.
func TestMountsOfTheJail(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	bundle := t.TempDir()
	below := filepath.Join(bundle, "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("test", below, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(below, unix.MNT_DETACH) })
	j := newJailOf(t, bundle)
	if got := run(t, j, "echo >/bundle/below/x"); !strings.Contains(got, "Read-only file system") {
		t.Errorf("write to a mount below the bundle: %q, want a read-only file system", got)
	}
	if err := j.AddContainer("c"); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Share("c", Source{Path: bundle}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(run(t, j, "/busybox cat /proc/self/mounts")) {
		if !strings.Contains(line, " /shared/.") {
			continue
		}
		for _, option := range []string{"nosuid", "nodev"} {
			if !strings.Contains(line, option) {
				t.Errorf("mount of the guest %q, want it %s", line, option)
			}
		}
	}
}

// TestNothingOutlivesTheJail: the host never sees the mounts, and programs end with the jail.
func TestNothingOutlivesTheJail(t *testing.T) {
	j := newJail(t)
	dir := t.TempDir()
	if err := j.AddContainer("c"); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Share("c", Source{Path: dir}); err != nil {
		t.Fatal(err)
	}
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), "podd-vm") {
		t.Errorf("the host has mounts of the jail, %v:\n%s", err, mounts)
	}
	cmd := exec.Command("/busybox", "sleep", "1000")
	if err := j.Start(cmd); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Millisecond)
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the program before the end of the jail: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	begin := time.Now()
	j.Close()
	if took := time.Since(begin); took >= closeGrace {
		t.Errorf("Close took %s, want it to see the end of the programs", took)
	}
	// Else the caller could not remove its cgroup.
	if err := cmd.Process.Signal(syscall.Signal(0)); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("the program after the end of the jail: %v, want %v", err, os.ErrProcessDone)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the program = %v, want it killed", err)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
