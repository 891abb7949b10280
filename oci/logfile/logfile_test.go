package logfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// noted returns a log in a directory that is noted now.
func noted(t testing.TB, dir, name string) Log {
	t.Helper()
	d, err := NoteDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return Log{Dir: d, Name: name}
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestPrepareAndOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pods/ns_name_uid")
	for name, want := range map[string]string{
		"0.log": dir + "/0.log", "web/0.log": dir + "/web/0.log", "a/b/c.log": dir + "/a/b/c.log",
		"./x//y.log": dir + "/x/y.log", "a:b.log": dir + "/a:b.log",
	} {
		l := noted(t, dir, name)
		for _, line := range []string{"one\n", "two\n"} { // the second time the file is there
			must(t, l.Prepare())
			f, err := l.Open()
			must(t, err)
			_, err = f.WriteString(line)
			must(t, err, f.Close())
		}
		if got, err := os.ReadFile(want); string(got) != "one\ntwo\n" {
			t.Errorf("%s = %q, %v, want the two lines", want, got, err)
		}
		if info, err := os.Stat(want); err != nil || info.Mode().Perm() != 0o640 || l.Path() != want {
			t.Errorf("%s: %v, %v, path %q, want mode 0640 and this path", want, info, err, l.Path())
		}
	}
	l := noted(t, dir, "absent/0.log")
	if _, err := l.Open(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open in a missing directory: %v, want %v", err, fs.ErrNotExist)
	}
	if _, err := os.Lstat(filepath.Join(dir, "absent")); err == nil {
		t.Error("Open created a directory, want none")
	}
}

// TestTail: whole lines only, as many as the limit allows.
func TestTail(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "0.log"), []byte("one\ntwo\nthree"), 0o600))
	l := noted(t, dir, "0.log")
	for limit, want := range map[int64]string{
		3: "ree", 5: "three",
		6: "three", 9: "three", 10: "two\nthree", 12: "two\nthree", 13: "one\ntwo\nthree", 100: "one\ntwo\nthree",
	} {
		if got, err := l.Tail(limit); err != nil || got != want {
			t.Errorf("Tail(%d) = %q, %v, want %q", limit, got, err, want)
		}
	}
	if _, err := noted(t, dir, "absent").Tail(5); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Tail of an absent log: %v, want %v", err, fs.ErrNotExist)
	}
}

func TestRemoveEmpty(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "web"), 0o755), os.WriteFile(filepath.Join(dir, "web/full"), []byte("x"), 0o600),
		os.WriteFile(filepath.Join(dir, "web/empty"), nil, 0o600), os.Mkdir(filepath.Join(dir, "web/dir"), 0o755),
		os.Symlink("empty", filepath.Join(dir, "web/link")))
	for name, want := range map[string]error{
		"web/full": nil, "web/absent": nil, "absent/log": nil, "web/dir": errdefs.ErrFailedPrecondition,
		"web/link": errdefs.ErrFailedPrecondition, "../x": errdefs.ErrInvalidArgument,
	} {
		if err := noted(t, dir, name).RemoveEmpty(); !errors.Is(err, want) {
			t.Errorf("%s: RemoveEmpty = %v, want %v", name, err, want)
		}
	}
	must(t, noted(t, dir, "web/empty").RemoveEmpty())
	if names, err := os.ReadDir(filepath.Join(dir, "web")); err != nil || len(names) != 3 {
		t.Errorf("left: %v, %v, want all but the empty log", names, err)
	}
}

// TestNotALog plants what a container could at a log's path: nothing but a regular file with one name is opened, at
// once, and nothing is changed.
func TestNotALog(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "secret")
	must(t,
		os.WriteFile(secret, []byte("secret"), 0o600),
		os.Symlink(outside, filepath.Join(dir, "out")),
		os.Symlink(secret, filepath.Join(dir, "link.log")),
		os.Symlink(filepath.Join(outside, "new"), filepath.Join(dir, "dangling.log")),
		os.Mkdir(filepath.Join(dir, "sub"), 0o755),
		os.Symlink("sub", filepath.Join(dir, "inside")),
		os.Symlink("/proc/self/root", filepath.Join(dir, "magic")),
		os.WriteFile(filepath.Join(dir, "file"), nil, 0o600),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644),
		unix.Mknod(filepath.Join(dir, "socket"), unix.S_IFSOCK|0o644, 0),
		os.Link(secret, filepath.Join(dir, "hard.log")),
	)
	names := []string{"", ".", "/etc/passwd", "..", "../x.log", "a/../../x.log", "sub/../x.log", "a/..", "out/x.log",
		"out/secret", "out/deep/x.log", "link.log", "dangling.log", "inside/x.log", "magic/x.log", "fifo", "socket",
		"hard.log", "sub", "sub/", "file/x.log", "a\x00b", "a\nb"}
	err := unix.Mknod(filepath.Join(dir, "device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
	if err == nil { // for root only
		names = append(names, "device")
	}
	for _, name := range names {
		l := noted(t, dir, name)
		if err := l.Prepare(); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("Prepare(%q): %v, want ErrInvalidArgument", name, err)
		}
		begin := time.Now()
		f, err := l.Open()
		if err == nil {
			f.Close()
		}
		if !errdefs.IsFailedPrecondition(err) && !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "log") {
			t.Errorf("Open(%q): %v, want ErrFailedPrecondition or ErrInvalidArgument", name, err)
		}
		if text, err := l.Tail(100); err == nil {
			t.Errorf("Tail(%q) = %q, want an error", name, text)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("Open(%q) took %v, want no wait", name, took)
		}
	}
	if left, _ := os.ReadDir(outside); len(left) != 1 {
		t.Errorf("created outside of the log directory: %q", left)
	}
	if got, err := os.ReadFile(secret); string(got) != "secret" {
		t.Errorf("the file outside contains %q, %v, want %q", got, err, "secret")
	}
}

func TestNoteDir(t *testing.T) {
	top := t.TempDir()
	real := filepath.Join(top, "data")
	must(t, os.Mkdir(real, 0o755), os.Symlink(real, filepath.Join(top, "admin")),
		os.WriteFile(filepath.Join(top, "file"), nil, 0o600))
	d, err := NoteDir(filepath.Join(top, "admin/pod/"))
	if want := filepath.Join(real, "pod"); err != nil || d.Path != want {
		t.Errorf("NoteDir below a link of the administrator = %+v, %v, want the real path %s", d, err, want)
	}
	for _, path := range []string{"relative", "", top + "/admin", top + "/admin/", top + "/admin/.", top + "/file"} {
		if d, err := NoteDir(path); err == nil {
			t.Errorf("NoteDir(%q) = %+v, want an error", path, d)
		}
	}
}

// TestDirectoryReplaced: nothing is opened through a link in place of a directory. Another directory is as good: people
// remove all logs, and the kubelet makes the directory of a pod that runs again.
func TestDirectoryReplaced(t *testing.T) {
	top, outside := t.TempDir(), t.TempDir()
	dir, away := filepath.Join(top, "pods/pod"), filepath.Join(top, "away")
	must(t, os.MkdirAll(filepath.Join(outside, "pod"), 0o755))
	l := noted(t, dir, "0.log")
	for name, replace := range map[string]func() error{
		"link":           func() error { return errors.Join(os.Rename(dir, away), os.Symlink(outside, dir)) },
		"link to itself": func() error { return errors.Join(os.Rename(dir, away), os.Symlink(away, dir)) },
		"file":           func() error { return errors.Join(os.Rename(dir, away), os.WriteFile(dir, nil, 0o600)) },
	} {
		must(t, replace())
		checkRefused(t, name, l)
		must(t, os.RemoveAll(dir), os.Rename(away, dir))
	}
	pods := filepath.Dir(dir)
	must(t, os.Rename(pods, away), os.Symlink(outside, pods))
	checkRefused(t, "link above", l)
	must(t, os.Remove(pods), os.Rename(away, pods))
	f, err := l.Open()
	must(t, err, f.Close(), os.RemoveAll(dir), os.Mkdir(dir, 0o755), l.Prepare())
	f, err = l.Open()
	must(t, err, f.Close())
	if left, _ := filepath.Glob(outside + "/*/*"); len(left) > 0 {
		t.Errorf("created outside of the log directory: %q", left)
	}
}

// TestMountInDirectory: a directory that was moved into place may have a mount of the node in it.
func TestMountInDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	dir := t.TempDir()
	l := noted(t, dir, "web/0.log")
	must(t, l.Prepare(), unix.Mount("tmpfs", filepath.Join(dir, "web"), "tmpfs", 0, "size=64k"))
	defer func() { must(t, unix.Unmount(filepath.Join(dir, "web"), 0)) }()
	if f, err := l.Open(); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Open below a mount = %v, %v, want a failed precondition", f, err)
	}
}

func checkRefused(t *testing.T, what string, l Log) {
	t.Helper()
	_, err := l.Open()
	for _, err := range []error{err, l.Prepare()} {
		if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), l.Dir.Path) {
			t.Errorf("%s: error %v, want ErrFailedPrecondition and %s", what, err, l.Dir.Path)
		}
	}
}

// TestSwapped races with a container that exchanges a part of the path for a link.
func TestSwapped(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "web"), 0o755), os.Mkdir(filepath.Join(outside, "deep"), 0o755),
		os.Symlink(outside, filepath.Join(dir, "evil")))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, dir+"/web", unix.AT_FDCWD, dir+"/evil", unix.RENAME_EXCHANGE)
			}
		}
	}()
	l, prepared, opened := noted(t, dir, "web/deep/0.log"), 0, 0
	for end := time.Now().Add(10 * time.Second); (prepared < 100 || opened < 100) && time.Now().Before(end); {
		if l.Prepare() == nil {
			prepared++
		}
		if f, err := l.Open(); err == nil {
			opened++
			f.Close()
		}
	}
	close(stop)
	<-done
	if prepared == 0 || opened == 0 {
		t.Errorf("Prepare succeeded %d times, Open %d, want both at times: the race proves nothing", prepared, opened)
	}
	if left, _ := filepath.Glob(outside + "/*/*"); len(left) > 0 {
		t.Errorf("created outside of the log directory: %q", left)
	}
}

// FuzzName: accepted names are below the directory, and nothing is created outside of it.
func FuzzName(f *testing.F) {
	for _, name := range []string{"web/0.log", "../x", "a/../../b", "/etc/passwd", "a//b/", "..."} {
		f.Add(name)
	}
	top := f.TempDir()
	dir := filepath.Join(top, "logs")
	f.Fuzz(func(t *testing.T, name string) {
		l := noted(t, dir, name)
		err := l.Prepare()
		if path := l.Path(); err == nil && (!strings.HasPrefix(path, dir+"/") || strings.Contains(path, "/../")) {
			t.Errorf("Prepare(%q) accepts %q, want a path below %s", name, path, dir)
		}
		file, err := l.Open()
		if err == nil {
			file.Close()
		}
		if entries, _ := os.ReadDir(top); len(entries) > 1 {
			t.Errorf("%q created something outside of the log directory", name)
		}
		_ = os.RemoveAll(dir)
	})
}
