package files

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// smallShm is enough for these tests, in bytes.
const smallShm = 1 << 20

// shmOf makes a pod with /dev/shm.
func shmOf(t *testing.T, f Files, pod string) string {
	t.Helper()
	f.ShmSize = smallShm
	must(t, f.Write(t.Context(), pod, Request{Config: &cri.PodSandboxConfig{}}))
	t.Cleanup(func() { remove(t, f, pod) })
	return f.shm(pod)
}

// TestShm: what is restored is what was saved: content, owners, modes and times.
func TestShm(t *testing.T) {
	f := newFiles(t)
	from, to := shmOf(t, f, "p"), shmOf(t, f, "q")
	must(t, os.WriteFile(from+"/a", []byte("text"), 0o600))
	must(t, os.Chown(from+"/a", 1000, 1001))
	must(t, os.Mkdir(from+"/dir", 0o700))
	must(t, os.WriteFile(from+"/dir/empty", nil, 0o600))
	must(t, os.Chmod(from+"/dir", 0o1777|os.ModeSticky))
	must(t, os.Mkdir(from+"/group", 0o700))
	must(t, os.Chmod(from+"/group", 0o775|os.ModeSetgid))
	must(t, os.WriteFile(from+"/sparse", bytes.Repeat([]byte("x"), 5000), 0o604))
	must(t, os.Truncate(from+"/sparse", 2*smallShm)) // larger than the filesystem
	must(t, os.Chtimes(from+"/dir", time.Time{}, time.Unix(1e9, 5)))
	must(t, os.Chown(from, 1002, 1003))
	must(t, os.Chmod(from, 0o775|os.ModeSetgid))
	must(t, os.Chtimes(from, time.Time{}, time.Unix(1e9, 6)))
	var archive bytes.Buffer
	must(t, f.SaveShm(t.Context(), "p", &archive))
	must(t, f.RestoreShm(t.Context(), "q", &archive, int64(archive.Len())))
	if got, want := listing(t, to), listing(t, from); got != want {
		t.Errorf("restored:\n%swant\n%s", got, want)
	}
	if data, err := os.ReadFile(to + "/a"); err != nil || string(data) != "text" {
		t.Errorf("content = %q, %v, want text", data, err)
	}
}

// listing describes a directory and the files in it.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	must(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil {
			var st unix.Stat_t
			must(t, unix.Lstat(path, &st))
			fmt.Fprintln(&out, path[len(dir):], info.Mode(), st.Uid, st.Gid, info.ModTime())
			if !info.IsDir() {
				fmt.Fprintln(&out, st.Size)
			}
		}
		return err
	}))
	return out.String()
}

// TestShmOfOtherFiles: what is neither a file with one name nor a directory is refused, also beforehand, and nothing
// outside is read.
func TestShmOfOtherFiles(t *testing.T) {
	f := newFiles(t)
	from := shmOf(t, f, "p")
	for name, plant := range map[string]func(path string) error{
		"link":      func(p string) error { return os.Symlink("/etc/passwd", p) },
		"directory": func(p string) error { return os.Symlink("/etc", p) },
		"FIFO":      func(p string) error { return unix.Mkfifo(p, 0o600) },
		"socket":    func(p string) error { return unix.Mknod(p, unix.S_IFSOCK, 0) },
		"two names": func(p string) error {
			must(t, os.WriteFile(from+"/other", nil, 0o600))
			return os.Link(from+"/other", p)
		},
		"deep": func(p string) error { return os.MkdirAll(p+strings.Repeat("/x", maxShmDepth), 0o700) },
	} {
		must(t, plant(from+"/planted"))
		wantUnsaved(t, f, name, errdefs.ErrFailedPrecondition)
		must(t, os.RemoveAll(from+"/planted"))
	}
	for i := range maxShmFiles + 1 {
		must(t, os.WriteFile(fmt.Sprint(from, "/", i), nil, 0o600))
	}
	wantUnsaved(t, f, "too many", errdefs.ErrResourceExhausted)
}

func wantUnsaved(t *testing.T, f Files, name string, want error) {
	t.Helper()
	if err := f.SaveShm(t.Context(), "p", &bytes.Buffer{}); !errors.Is(err, want) {
		t.Errorf("%s: SaveShm = %v, want %v", name, err, want)
	}
	if err := f.CheckShm(t.Context(), "p", &cri.PodSandboxConfig{}); !errors.Is(err, want) {
		t.Errorf("%s: CheckShm = %v, want %v", name, err, want)
	}
}

// TestShmFile: a file is found, and a directory that cannot be read is not empty.
func TestShmFile(t *testing.T) {
	f := newFiles(t)
	from := shmOf(t, f, "p")
	for _, want := range []string{"", "a"} {
		if got, err := f.ShmFile("p", &cri.PodSandboxConfig{}); got != want || err != nil {
			t.Errorf("ShmFile = %q, %v, want %q", got, err, want)
		}
		must(t, os.WriteFile(from+"/a", nil, 0o600))
	}
	if got, err := f.ShmFile("none", &cri.PodSandboxConfig{}); err == nil {
		t.Errorf("ShmFile of a directory that is gone = %q, want an error", got)
	}
}

// TestShmUnused: an empty /dev/shm with its default mode and owner needs no archive.
func TestShmUnused(t *testing.T) {
	f := newFiles(t)
	from := shmOf(t, f, "p")
	unused := func(what string, want bool) {
		t.Helper()
		if got, err := f.ShmUnused("p", &cri.PodSandboxConfig{}); got != want || err != nil {
			t.Errorf("%s: ShmUnused = %v, %v, want %v", what, got, err, want)
		}
	}
	unused("new", true)
	must(t, os.WriteFile(from+"/a", nil, 0o600))
	unused("with a file", false)
	must(t, os.Remove(from+"/a"))
	unused("with a file that was removed", true)
	must(t, os.Chmod(from, 0o777))
	unused("with another mode", false)
	must(t, os.Chmod(from, os.ModeSticky|0o777))
	must(t, os.Chown(from, 0, 1000))
	unused("with another group", false)
	if _, err := f.ShmUnused("none", &cri.PodSandboxConfig{}); err == nil {
		t.Error("ShmUnused of a directory that is gone = nil, want an error")
	}
}

// TestShmEnds: the end of the context ends a save and a restore of a file with holes, which costs a container nothing.
func TestShmEnds(t *testing.T) {
	f := newFiles(t)
	from := shmOf(t, f, "p")
	shmOf(t, f, "q")
	must(t, os.WriteFile(from+"/sparse", nil, 0o600))
	must(t, os.Truncate(from+"/sparse", 1<<50))
	for name, call := range map[string]func(context.Context) error{
		"save": func(ctx context.Context) error { return f.SaveShm(ctx, "p", io.Discard) },
		"restore": func(ctx context.Context) error {
			return f.RestoreShm(ctx, "q", io.MultiReader(header(t, "x", 1<<50), zeros{}), 1<<51)
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		ended := make(chan error, 1)
		go func() { ended <- call(ctx) }()
		select {
		case err := <-ended:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s = %v, want %v", name, err, context.DeadlineExceeded)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s goes on 10 s after the end of its context", name)
		}
		cancel()
	}
}

// header returns an archive that ends after the header of a file.
func header(t *testing.T, name string, size int64) io.Reader {
	t.Helper()
	var archive bytes.Buffer
	must(t, tar.NewWriter(&archive).WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: size}))
	return &archive
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestShmTruncated: a container that is not saved truncates a file while it is.
func TestShmTruncated(t *testing.T) {
	f := newFiles(t)
	path := shmOf(t, f, "p") + "/a"
	must(t, os.WriteFile(path, make([]byte, smallShm/2), 0o600))
	err := f.SaveShm(t.Context(), "p", truncater(path))
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "truncated") {
		t.Errorf("SaveShm = %v, want %v that says truncated", err, errdefs.ErrFailedPrecondition)
	}
}

// truncater truncates a file when anything is written, such as the header of the file.
type truncater string

func (path truncater) Write(p []byte) (int, error) { return len(p), os.Truncate(string(path), 0) }

// TestHostileShm: an archive makes nothing outside of the directory, and no more than fits.
func TestHostileShm(t *testing.T) {
	f := newFiles(t)
	to := shmOf(t, f, "q")
	for name, headers := range map[string][]tar.Header{
		"outside":   {{Name: "../x", Typeflag: tar.TypeReg}},
		"absolute":  {{Name: "/x", Typeflag: tar.TypeReg}},
		"itself":    {{Name: ".", Typeflag: tar.TypeReg}},
		"a link":    {{Name: "x", Typeflag: tar.TypeSymlink, Linkname: "/etc"}},
		"a device":  {{Name: "x", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 1}},
		"twice":     {{Name: "y", Typeflag: tar.TypeReg}, {Name: "y", Typeflag: tar.TypeReg}},
		"no parent": {{Name: "none/x", Typeflag: tar.TypeReg}},
	} {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		for _, h := range headers {
			must(t, w.WriteHeader(&h))
		}
		must(t, w.Close())
		if err := f.RestoreShm(t.Context(), "q", &archive, smallShm); err == nil {
			t.Errorf("%s: RestoreShm = nil, want an error", name)
		}
		if _, err := os.Lstat(to + "/x"); err == nil {
			t.Errorf("%s: the file was made", name)
		}
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	must(t, w.WriteHeader(&tar.Header{Name: "large", Typeflag: tar.TypeReg, Size: 2 * smallShm}))
	_, err := w.Write(bytes.Repeat([]byte("x"), 2*smallShm))
	must(t, err)
	if err := f.RestoreShm(t.Context(), "q", &archive, 3*smallShm); !errdefs.IsResourceExhausted(err) {
		t.Errorf("RestoreShm of a file that does not fit = %v, want %v", err, errdefs.ErrResourceExhausted)
	}
	holes := sparse(t, 1<<60)
	if err := f.RestoreShm(t.Context(), "q", holes, holes.Size()); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("RestoreShm of a file with holes = %v, want %v", err, errdefs.ErrFailedPrecondition)
	}
}

// sparse returns an archive with a file of one hole (GNU tar, sparse format 1.0 of PAX), as archive/tar reads and does
// not write it.
func sparse(t *testing.T, size int64) *bytes.Reader {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	must(t, w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: "x", Size: 512, Format: tar.FormatPAX, PAXRecords: map[string]string{
			"ABC.sparse.major": "1", "ABC.sparse.minor": "0", "ABC.sparse.name": "holes",
			"ABC.sparse.realsize": fmt.Sprint(size),
		},
	}))
	_, err := w.Write(append([]byte("0\n"), make([]byte, 510)...)) // a map of no data
	must(t, err)
	must(t, w.Close())
	return bytes.NewReader(bytes.ReplaceAll(archive.Bytes(), []byte("ABC.sparse."), []byte("GNU.sparse.")))
}
