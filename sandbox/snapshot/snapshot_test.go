package snapshot

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func config(name string) *cri.ContainerConfig {
	return &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: name}, Command: []string{"serve"},
		Mounts: []*cri.Mount{{ContainerPath: "/data", HostPath: "/srv"}},
		Envs:   []*cri.KeyValue{{Key: "B", Value: []byte("secret")}, {Key: "A", Value: []byte("1")}},
	}
}

// write makes a checkpoint in dir.
func write(t testing.TB, dir string, key *Key) {
	t.Helper()
	w, err := Create(dir, KindGVisor, "")
	must(t, err)
	defer w.Close()
	writeImages(t, w)
	must(t, w.Commit(t.Context(), manifest(t), key))
}

func writeImages(t testing.TB, w *Writer) {
	t.Helper()
	for _, name := range imageFiles() {
		must(t, os.WriteFile(filepath.Join(w.ImagePath(), name), bytes.Repeat([]byte(name), 1000), 0o644))
	}
}

func manifest(t testing.TB) Manifest {
	t.Helper()
	c, err := ContainerConfig(config("web"))
	must(t, err)
	p, err := PodConfig(&cri.PodSandboxConfig{})
	must(t, err)
	return Manifest{
		PodID: "p", Runtime: "runsc 1", Arch: "amd64", Pod: p, Containers: []Container{{"web", "1111", c}},
	}
}

func newKey(t testing.TB) *Key { return &Key{Path: filepath.Join(t.TempDir(), "key")} }

func output(t testing.TB) string {
	dir := filepath.Join(t.TempDir(), "out")
	must(t, os.Mkdir(dir, 0o700))
	return dir
}

// files lists the files below dir with their modes.
func files(t testing.TB, dir string) (list []string) {
	t.Helper()
	must(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if rel, _ := filepath.Rel(dir, path); err == nil && rel != "." {
			list = append(list, info.Mode().String()+" "+rel)
		}
		return err
	}))
	return list
}

func TestRoundTrip(t *testing.T) {
	dir, key := output(t), newKey(t)
	write(t, dir, key)
	want := []string{
		"drwx------ gvisor", "-rw------- gvisor/checkpoint.img", "-rw------- gvisor/pages.img",
		"-rw------- gvisor/pages_meta.img", "-rw------- manifest.hmac", "-rw------- manifest.json",
	}
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("files = %q, want %q", got, want)
	}
	s, err := Open(dir, Trust{Key: key})
	must(t, err)
	must(t, s.Verify(t.Context()))
	if len(s.Digest) != 64 || s.Container("web") == nil || s.Container("other") != nil {
		t.Errorf("Open = %+v, want the manifest with container web", s)
	}
	to := filepath.Join(t.TempDir(), "staged")
	must(t, s.Stage(t.Context(), to))
	data, err := os.ReadFile(filepath.Join(to, "pages.img"))
	if err != nil || !bytes.Equal(data, bytes.Repeat([]byte("pages.img"), 1000)) {
		t.Errorf("staged pages.img: %d bytes, %v; want the image", len(data), err)
	}
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("files after the restore = %q, want them as they were", got)
	}
	if k, err := os.Stat(key.Path); err != nil || k.Mode() != 0o600 || k.Size() != 32 {
		t.Errorf("key = %v, %v, want 32 bytes of mode 0600", k, err)
	}
}

// TestOutputDirectory: only an empty directory that nobody else can write to is used.
func TestOutputDirectory(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"absent":            os.Remove,
		"a file":            func(d string) error { return errors.Join(os.Remove(d), os.WriteFile(d, nil, 0o600)) },
		"a link":            func(d string) error { return errors.Join(os.Remove(d), os.Symlink(t.TempDir(), d)) },
		"writable by group": func(d string) error { return os.Chmod(d, 0o770) },
		"writable by all":   func(d string) error { return os.Chmod(d, 0o707) },
		"not empty":         func(d string) error { return os.WriteFile(d+"/x", nil, 0o600) },
	} {
		dir := output(t)
		must(t, spoil(dir))
		before, _ := os.ReadDir(dir)
		if w, err := Create(dir, KindGVisor, ""); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: Create = %v, %v, want %v", name, w, err, errdefs.ErrInvalidArgument)
		}
		if after, _ := os.ReadDir(dir); len(after) != len(before) {
			t.Errorf("%s: %d files after the error, want %d", name, len(after), len(before))
		}
	}
}

// TestDiscard: after a failure at any point the directory is empty again.
func TestDiscard(t *testing.T) {
	for name, fail := range map[string]func(t *testing.T, w *Writer, key *Key) error{
		"nothing written": func(t *testing.T, w *Writer, key *Key) error {
			return w.Commit(t.Context(), manifest(t), key)
		},
		"an image is missing": func(t *testing.T, w *Writer, key *Key) error {
			writeImages(t, w)
			must(t, os.Remove(filepath.Join(w.ImagePath(), "pages.img")))
			return w.Commit(t.Context(), manifest(t), key)
		},
		"the caller gave up": func(t *testing.T, w *Writer, key *Key) error {
			writeImages(t, w)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return w.Commit(ctx, manifest(t), key)
		},
		"the key cannot be written": func(t *testing.T, w *Writer, key *Key) error {
			writeImages(t, w)
			return w.Commit(t.Context(), manifest(t), &Key{Path: "/proc/none/key"})
		},
		"the manifest is too large": func(t *testing.T, w *Writer, key *Key) error {
			writeImages(t, w)
			m := manifest(t)
			m.PodID = strings.Repeat("x", MaxManifest)
			return w.Commit(t.Context(), m, key)
		},
		"after the manifest": func(t *testing.T, w *Writer, key *Key) error {
			writeImages(t, w)
			must(t, w.Commit(t.Context(), manifest(t), key))
			return errors.New("later")
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := output(t)
			w, err := Create(dir, KindGVisor, "")
			must(t, err)
			defer w.Close()
			if err := fail(t, w, newKey(t)); err == nil {
				t.Error("Commit = nil, want an error")
			}
			open, err := os.Open(filepath.Join(w.ImagePath(), "checkpoint.img"))
			must(t, w.Discard())
			if info, serr := open.Stat(); err == nil && (serr != nil || info.Size() > 0) {
				t.Errorf("image that a sandbox has open: %v, %v, want 0 bytes", info, serr)
			}
			if left := files(t, dir); len(left) > 0 {
				t.Errorf("left after Discard: %q, want nothing", left)
			}
		})
	}
}

// TestHostileDirectory changes a checkpoint in the ways of somebody who can write to it. Each is refused before the
// runtime sees a byte, and nothing outside the directory is opened.
func TestHostileDirectory(t *testing.T) {
	link := func(to, name string) func(dir string) error {
		return func(d string) error {
			return errors.Join(os.RemoveAll(filepath.Join(d, name)), os.Symlink(to, filepath.Join(d, name)))
		}
	}
	fifo := func(name string) func(dir string) error {
		return func(d string) error {
			return errors.Join(os.Remove(filepath.Join(d, name)), unix.Mkfifo(filepath.Join(d, name), 0o600))
		}
	}
	edit := func(old, new string) func(dir string) error {
		return func(d string) error {
			data, err := os.ReadFile(d + "/manifest.json")
			if changed := strings.Replace(string(data), old, new, 1); changed != string(data) {
				return errors.Join(err, os.WriteFile(d+"/manifest.json", []byte(changed), 0o600))
			}
			return errors.New("nothing to replace")
		}
	}
	add := func(name string) func(dir string) error {
		return func(d string) error {
			f, err := os.OpenFile(filepath.Join(d, name), os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString("x")
				f.Close()
			}
			return err
		}
	}
	for _, tt := range []struct {
		name  string
		spoil func(dir string) error
		is    func(error) bool
		// stage is true if the images are at fault, not the manifest.
		stage bool
	}{
		{"no manifest", func(d string) error { return os.Remove(d + "/manifest.json") }, errdefs.IsInvalidArgument, false},
		{"manifest is a link", link("/etc/passwd", "manifest.json"), errdefs.IsInvalidArgument, false},
		{"manifest is a FIFO", fifo("manifest.json"), errdefs.IsInvalidArgument, false},
		{"manifest is huge", func(d string) error { return os.Truncate(d+"/manifest.json", MaxManifest+1) },
			errdefs.IsInvalidArgument, false},
		{"manifest changed", edit("serve", "other"), errdefs.IsPermissionDenied, false},
		{"digest changed", edit(`"sha256":"`, `"sha256":"0`), errdefs.IsPermissionDenied, false},
		{"no seal", func(d string) error { return os.Remove(d + "/manifest.hmac") }, errdefs.IsPermissionDenied, false},
		{"seal is empty", func(d string) error { return os.Truncate(d+"/manifest.hmac", 0) },
			errdefs.IsPermissionDenied, false},
		{"seal is long", add("manifest.hmac"), errdefs.IsInvalidArgument, false},
		{"seal is a FIFO", fifo("manifest.hmac"), errdefs.IsInvalidArgument, false},
		{"image is a link", link("/etc/passwd", "gvisor/pages.img"), errdefs.IsInvalidArgument, true},
		{"image is a link within", link("pages_meta.img", "gvisor/pages.img"), errdefs.IsInvalidArgument, true},
		{"image is a FIFO", fifo("gvisor/pages.img"), errdefs.IsInvalidArgument, true},
		{"image is longer", add("gvisor/pages.img"), errdefs.IsDataLoss, true},
		{"image is shorter", func(d string) error { return os.Truncate(d+"/gvisor/pages.img", 10) },
			errdefs.IsDataLoss, true},
		{"image was replaced", func(d string) error {
			return os.WriteFile(d+"/gvisor/pages.img", bytes.Repeat([]byte("other.img"), 1000), 0o600)
		}, errdefs.IsDataLoss, true},
		{"image is missing", func(d string) error { return os.Remove(d + "/gvisor/pages.img") }, isAbsent, true},
		{"images are a link", link("/etc", "gvisor"), isAny, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, key := output(t), newKey(t)
			write(t, dir, key)
			must(t, tt.spoil(dir))
			s, err := Open(dir, Trust{Key: key})
			if tt.stage {
				must(t, err)
				err = s.Verify(t.Context())
				if serr := s.Stage(t.Context(), filepath.Join(t.TempDir(), "staged")); !tt.is(serr) {
					t.Errorf("error of Stage = %v, want one of another kind", serr)
				}
			}
			if !tt.is(err) {
				t.Errorf("error = %v, want one of another kind", err)
			}
		})
	}
}

func isAbsent(err error) bool { return errors.Is(err, os.ErrNotExist) }
func isAny(err error) bool    { return err != nil }

// TestForeign: without a key the seal does not count, all other checks do.
func TestForeign(t *testing.T) {
	dir := output(t)
	write(t, dir, newKey(t))
	if _, err := Open(dir, Trust{Key: newKey(t)}); !errdefs.IsPermissionDenied(err) {
		t.Errorf("Open with the key of another node = %v, want %v", err, errdefs.ErrPermissionDenied)
	}
	s, err := Open(dir, Trust{Key: newKey(t), Foreign: true})
	must(t, err)
	must(t, s.Stage(t.Context(), filepath.Join(t.TempDir(), "staged")))
	data, err := os.ReadFile(dir + "/manifest.json")
	must(t, err)
	for name, change := range map[string][2]string{
		"unknown field": {`{"format"`, `{"new":1,"format"`}, "format": {`"format":1`, `"format":2`},
		"kind": {`"kind":"gvisor"`, `"kind":"criu"`}, "path": {`"name":"pages.img"`, `"name":"../pages.img"`},
		"same file twice": {`"name":"pages.img"`, `"name":"checkpoint.img"`}, "syntax": {`{"format"`, `{`},
		"negative size":  {`"size":9000`, `"size":-1`},
		"size":           {`"size":9000`, `"size":9223372036854775807`},
		"no containers":  {`"containers":[{`, `"containers":[],"x":[{`},
		"huge container": {`"format":1`, `"format":1e99`},
	} {
		changed := strings.Replace(string(data), change[0], change[1], 1)
		if changed == string(data) {
			t.Fatalf("%s: nothing to replace in %s", name, data)
		}
		must(t, os.WriteFile(dir+"/manifest.json", []byte(changed), 0o600))
		if _, err := Open(dir, Trust{Key: newKey(t), Foreign: true}); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%s: Open = %v, want %v", name, err, errdefs.ErrFailedPrecondition)
		}
	}
}

// TestRestoreTime: a large checkpoint has more time to be restored.
func TestRestoreTime(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "container-web"), 0o700))
	for _, name := range []string{"pages.img", "container-web/pages-1.img"} { // sparse
		must(t, errors.Join(os.WriteFile(filepath.Join(dir, name), nil, 0o600),
			os.Truncate(filepath.Join(dir, name), 1<<30)))
	}
	if got, want := RestoreTime(dir), 102*time.Second; got != want {
		t.Errorf("RestoreTime of 2 GiB = %v, want %v", got, want)
	}
	if got := RestoreTime(filepath.Join(dir, "none")); got != 0 {
		t.Errorf("RestoreTime of nothing = %v, want 0", got)
	}
}

func TestDamagedKey(t *testing.T) {
	dir, key := output(t), newKey(t)
	write(t, dir, key)
	must(t, os.Truncate(key.Path, 5))
	if _, err := Open(dir, Trust{Key: key}); err == nil || !strings.Contains(err.Error(), "5 bytes") {
		t.Errorf("Open = %v, want an error about the key", err)
	}
}

func FuzzManifest(f *testing.F) {
	dir, key := f.TempDir(), newKey(f)
	must(f, os.Chmod(dir, 0o700))
	write(f, dir, key)
	data, err := os.ReadFile(dir + "/manifest.json")
	must(f, err)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseManifest(data)
		if err != nil {
			return
		}
		if len(m.Files) != len(imageFiles()) || len(m.Containers) == 0 {
			t.Errorf("accepted %+v", m)
		}
		_ = m.CheckContainers([]*cri.ContainerConfig{config("web")})
		_ = m.CheckPod(&cri.PodSandboxConfig{})
	})
}
