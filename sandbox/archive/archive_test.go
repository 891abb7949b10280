package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci"
)

// request is a request whose dump has two images.
func request(t *testing.T) Request {
	t.Helper()
	dir := t.TempDir()
	spec := filepath.Join(dir, "config.json")
	if err := os.WriteFile(spec, []byte(`{"ociVersion": "1.2.0"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return Request{
		Location: filepath.Join(dir, "out", "archive.tar"), Staging: filepath.Join(dir, "staging"), Spec: spec,
		Config: Config{ID: "id", Name: "app", Image: "example.com/app:1", ImageName: "example.com/app:1"},
		Dump: func(ctx context.Context, d oci.Dumped, frozen func(context.Context) error) error {
			images := filepath.Join(d.Dir, oci.DumpImages)
			err := os.Mkdir(images, 0o755)
			for _, path := range []string{
				filepath.Join(images, "core-1.img"), filepath.Join(images, "pages-1.img"),
				filepath.Join(d.Dir, oci.DumpLog), filepath.Join(d.Dir, oci.DumpStats),
			} {
				err = errors.Join(err, os.WriteFile(path, []byte(filepath.Base(path)), 0o644))
			}
			return errors.Join(err, frozen(ctx))
		},
		Diff: func(_ context.Context, w io.Writer) error {
			_, err := io.WriteString(w, "layer")
			return err
		},
		Shm: Shm{
			Unused: func() (bool, error) { return false, nil },
			Save: func(_ context.Context, w io.Writer) error {
				_, err := io.WriteString(w, "shm")
				return err
			},
		},
	}
}

// files reads an archive.
func files(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := map[string]string{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == "checkpoint/" && h.Typeflag == tar.TypeDir {
			got[h.Name] = "directory"
			continue
		}
		if h.Typeflag != tar.TypeReg || h.Mode != 0o600 {
			t.Errorf("%s has type %c and mode %o, want a regular file with 600", h.Name, h.Typeflag, h.Mode)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = string(data)
	}
}

func TestSave(t *testing.T) {
	r := request(t)
	if err := errors.Join(os.Mkdir(filepath.Dir(r.Location), 0o700), Save(t.Context(), r)); err != nil {
		t.Fatal(err)
	}
	got := files(t, r.Location)
	for name, want := range map[string]string{
		"spec.dump": `{"ociVersion": "1.2.0"}`, "rootfs-diff.tar": "layer", "dump.log": "dump.log",
		"stats-dump": "stats-dump", "devshm-checkpoint.tar": "shm", "checkpoint/": "directory",
		"checkpoint/core-1.img": "core-1.img", "checkpoint/pages-1.img": "pages-1.img",
	} {
		if got[name] != want {
			t.Errorf("%s = %q, want %q", name, got[name], want)
		}
	}
	var config map[string]any
	if err := json.Unmarshal([]byte(got["config.dump"]), &config); err != nil || config["id"] != "id" ||
		config["rootfsImageName"] != "example.com/app:1" || config["checkpointedTime"] == "0001-01-01T00:00:00Z" {
		t.Errorf("config.dump = %v, %v, want the container's and a time", got["config.dump"], err)
	}
	if len(got) != 9 {
		t.Errorf("%d files, want 9", len(got))
	}
	if info, err := os.Stat(r.Location); err != nil || info.Mode() != 0o600 {
		t.Errorf("archive: %v, %v, want mode 600", info.Mode(), err)
	}
	if _, err := os.Lstat(r.Staging); err == nil {
		t.Error("the staging directory exists, want it removed")
	}
	before, _ := os.ReadFile(r.Location)
	if err := Save(t.Context(), r); !errdefs.IsAlreadyExists(err) {
		t.Errorf("Save again = %v, want %v", err, errdefs.ErrAlreadyExists)
	}
	if after, _ := os.ReadFile(r.Location); !bytes.Equal(before, after) {
		t.Error("the archive has changed")
	}
}

// TestShmThatCannotBeSaved: the archive is without it, and says why.
func TestShmThatCannotBeSaved(t *testing.T) {
	r, broken := request(t), errors.New("broken")
	var reason error
	r.Omit = func(err error) { reason = err }
	r.Shm.Save = func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, "a part")
		return errors.Join(err, broken)
	}
	if err := errors.Join(os.Mkdir(filepath.Dir(r.Location), 0o700), Save(t.Context(), r)); err != nil {
		t.Fatal(err)
	}
	got := files(t, r.Location)
	data, found := got["devshm-checkpoint.tar"]
	if found || got["rootfs-diff.tar"] != "layer" || !errors.Is(reason, broken) {
		t.Errorf("shm = %q, %v, rootfs %q, reason %v; want no shm, the layer, %v", data, found, got["rootfs-diff.tar"],
			reason, broken)
	}
}

// TestSaveFails: whatever fails, there is neither an archive nor anything else.
func TestSaveFails(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		change func(r *Request)
		want   error
		text   string
	}{
		"dump": {change: func(r *Request) {
			r.Dump = func(context.Context, oci.Dumped, func(context.Context) error) error { return broken }
		}, want: broken},
		"diff": {change: func(r *Request) {
			r.Diff = func(context.Context, io.Writer) error { return broken }
		}, want: broken},
		"no spec": {change: func(r *Request) { r.Spec = "/absent" }, want: os.ErrNotExist},
		"no directory": {change: func(r *Request) { r.Location = "/absent/archive.tar" },
			want: errdefs.ErrInvalidArgument},
		"link": {change: func(r *Request) {
			if err := os.Symlink("/etc/passwd", r.Location); err != nil {
				panic(err)
			}
		}, want: errdefs.ErrAlreadyExists},
		"images are no files": {change: func(r *Request) { r.Dump = replacing(r.Dump, unix.S_IFIFO) }, text: "regular"},
		"an image is a link":  {change: func(r *Request) { r.Dump = replacing(r.Dump, unix.S_IFLNK) }, text: "symbolic"},
		"appears meanwhile": {change: func(r *Request) {
			dump := r.Dump
			r.Dump = func(ctx context.Context, d oci.Dumped, frozen func(context.Context) error) error {
				return errors.Join(dump(ctx, d, frozen), os.Symlink("/etc/passwd", r.Location))
			}
		}, want: errdefs.ErrAlreadyExists},
	} {
		t.Run(name, func(t *testing.T) {
			r := request(t)
			dir := filepath.Dir(r.Location)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			test.change(&r)
			err := Save(t.Context(), r)
			if err == nil || test.want != nil && !errors.Is(err, test.want) ||
				!strings.Contains(err.Error(), test.text) {
				t.Errorf("Save = %v, want %v %s", err, test.want, test.text)
			}
			if _, err := os.Lstat(r.Staging); err == nil {
				t.Error("the staging directory exists, want it removed")
			}
			left, _ := os.ReadDir(dir)
			left = slices.DeleteFunc(left, func(e os.DirEntry) bool { return e.Type() == os.ModeSymlink })
			if len(left) > 0 {
				t.Errorf("%v is left, want nothing", left)
			}
		})
	}
}

// replacing replaces an image of the dump by a FIFO or a symbolic link.
func replacing(
	dump func(context.Context, oci.Dumped, func(context.Context) error) error, kind uint32,
) func(context.Context, oci.Dumped, func(context.Context) error) error {
	return func(ctx context.Context, d oci.Dumped, frozen func(context.Context) error) error {
		path := filepath.Join(d.Dir, oci.DumpImages, "core-1.img")
		err := errors.Join(dump(ctx, d, frozen), os.Remove(path))
		if kind == unix.S_IFLNK {
			return errors.Join(err, os.Symlink("/etc/passwd", path))
		}
		return errors.Join(err, unix.Mkfifo(path, 0o600))
	}
}

// TestSaveUntilTheDeadline: the context also ends the writing.
func TestSaveUntilTheDeadline(t *testing.T) {
	r := request(t)
	if err := os.Mkdir(filepath.Dir(r.Location), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	dump, late := r.Dump, errors.New("late")
	r.Dump = func(ctx context.Context, d oci.Dumped, frozen func(context.Context) error) error {
		defer cancel(late)
		return dump(ctx, d, frozen)
	}
	if err := Save(ctx, r); !errors.Is(err, late) {
		t.Errorf("Save = %v, want %v", err, late)
	}
	if _, err := os.Lstat(r.Location); err == nil {
		t.Error("the archive exists, want none")
	}
}

// A layer may take half of the free space: sparse files in a container can have any size.
func TestSaveLargeLayer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a small disk")
	}
	r := request(t)
	disk := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Dir(r.Location), 0o700),
		unix.Mount("disk", disk, "tmpfs", 0, "size=1m")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
	r.Staging = filepath.Join(disk, "staging")
	for size, fits := range map[int]bool{400 << 10: true, 600 << 10: false} {
		r.Diff = func(_ context.Context, w io.Writer) error {
			_, err := w.Write(make([]byte, size))
			return err
		}
		err := Save(t.Context(), r)
		if fits != (err == nil) || err != nil && !errdefs.IsResourceExhausted(err) {
			t.Errorf("Save with a layer of %d bytes on a disk of 1 MiB = %v, want success: %v", size, err, fits)
		}
		os.Remove(r.Location)
	}
}
