package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func TestLogPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pods/ns_name_uid")
	for rel, want := range map[string]string{
		"0.log": dir + "/0.log", "web/0.log": dir + "/web/0.log", "a/b/c.log": dir + "/a/b/c.log",
		"./x//y.log": dir + "/x/y.log",
	} {
		for range 2 { // the directories are there the second time
			got, err := LogPath(dir, rel)
			if err != nil || got != want {
				t.Errorf("LogPath(%q) = %q, %v, want %q", rel, got, err, want)
			}
			if info, err := os.Stat(filepath.Dir(want)); err != nil || !info.IsDir() {
				t.Errorf("directory of %q: %v", rel, err)
			}
		}
	}
	write(t, filepath.Join(dir, "there.log"), "line")
	if _, err := LogPath(dir, "there.log"); err != nil {
		t.Errorf("LogPath of a log that exists: %v", err)
	}
}

func TestLogPathErrors(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	for _, err := range []error{
		os.Symlink(outside, filepath.Join(dir, "out")),
		os.Symlink(filepath.Join(outside, "passwd"), filepath.Join(dir, "link.log")),
		os.Mkdir(filepath.Join(dir, "sub"), 0o755),
		os.Symlink("sub", filepath.Join(dir, "inside")),
		os.Symlink("/proc/self/root", filepath.Join(dir, "magic")),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "file"), "")
	for _, rel := range []string{
		"", ".", "/etc/passwd", "..", "../x.log", "a/../../x.log", "sub/../x.log", "a/..", "out/x.log", "out/deep/x.log",
		"link.log",
		"inside/x.log", "magic/x.log", "fifo", "sub", "sub/", "file/x.log", "a\x00b", "a\nb",
	} {
		got, err := LogPath(dir, rel)
		if !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("LogPath(%q) = %q, %v, want ErrInvalidArgument", rel, got, err)
		}
	}
	if _, err := LogPath("relative", "x.log"); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("LogPath in a relative directory: error %v, want ErrInvalidArgument", err)
	}
	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("created outside of the log directory: %q", left)
	}
}

// TestLogPathSwapped races LogPath with a pod that mounts its log directory and exchanges a part for a link.
func TestLogPathSwapped(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	if err := errors.Join(
		os.Mkdir(filepath.Join(dir, "web"), 0o755), os.Symlink(outside, filepath.Join(dir, "evil")),
	); err != nil {
		t.Fatal(err)
	}
	swapping(t, filepath.Join(dir, "web"), filepath.Join(dir, "evil"))
	made := 0
	for range 3000 {
		if _, err := LogPath(dir, "web/deep/0.log"); err == nil {
			made++
		}
	}
	if made == 0 {
		t.Error("LogPath never succeeded, want it to at times: the race proves nothing")
	}
	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("created outside of the log directory: %q", left)
	}
}

// FuzzLogPath: accepted paths are below the directory, and nothing is created outside of it.
func FuzzLogPath(f *testing.F) {
	for _, rel := range []string{"web/0.log", "../x", "a/../../b", "/etc/passwd", "a//b/", "..."} {
		f.Add(rel)
	}
	top := f.TempDir()
	dir := filepath.Join(top, "logs")
	f.Fuzz(func(t *testing.T, rel string) {
		got, err := LogPath(dir, rel)
		if err == nil && (!strings.HasPrefix(got, dir+"/") || strings.Contains(got, "/../") || filepath.Clean(got) != got) {
			t.Errorf("LogPath(%q) = %q, want a clean path below %s", rel, got, dir)
		}
		if entries, _ := os.ReadDir(top); len(entries) > 1 {
			t.Errorf("LogPath(%q) created something outside of the log directory", rel)
		}
		_ = os.RemoveAll(dir)
	})
}
