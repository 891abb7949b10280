package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDiff: the layer has what a container wrote and removed, and nothing that a link leads to.
func TestDiff(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	s := open(t, config(t, reg.host))
	root := rootfs(t, s, "c", pull(t, s, reg.host+"/app:v1").ID)
	if err := errors.Join(os.WriteFile(filepath.Join(root, "new"), []byte("content"), 0o640),
		os.Remove(filepath.Join(root, "bin/app")), os.Symlink("/etc", filepath.Join(root, "host")),
		unix.Mkfifo(filepath.Join(root, "fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var layer bytes.Buffer
	if err := s.Diff(t.Context(), "c", &layer); err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(&layer); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, filepath.Clean(h.Name))
		if data, _ := io.ReadAll(r); h.Name == "new" && (string(data) != "content" || h.Mode&0o777 != 0o640) {
			t.Errorf("new = %q with mode %o, want content with 640", data, h.Mode)
		}
	}
	for _, want := range []string{"new", "bin/.wh.app", "host", "fifo"} {
		if !slices.Contains(names, want) {
			t.Errorf("layer has %q, want also %s", names, want)
		}
	}
	if slices.Contains(names, "host/passwd") {
		t.Errorf("layer has %q, want no file of the node", names)
	}
	if err := s.Diff(t.Context(), "absent", io.Discard); err == nil {
		t.Error("Diff of a container without a root filesystem = nil, want an error")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	late := errors.New("late")
	cancel(late)
	if err := s.Diff(ctx, "c", io.Discard); !errors.Is(err, late) {
		t.Errorf("Diff past the deadline = %v, want %v", err, late)
	}
}

// TestApply: a layer of Diff makes another container's root filesystem the same.
func TestApply(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	s := open(t, config(t, reg.host))
	id := pull(t, s, reg.host+"/app:v1").ID
	from, to := rootfs(t, s, "from", id), rootfs(t, s, "to", id)
	if err := errors.Join(os.MkdirAll(filepath.Join(from, "a/b"), 0o750),
		os.WriteFile(filepath.Join(from, "a/b/new"), []byte("content"), 0o640), os.Remove(filepath.Join(from, "bin/app")),
		os.Lchown(filepath.Join(from, "a/b/new"), 7, 8), os.Symlink("/etc", filepath.Join(from, "host"))); err != nil {
		t.Fatal(err)
	}
	var layer bytes.Buffer
	if err := errors.Join(s.Diff(t.Context(), "from", &layer), s.Apply(t.Context(), "to", &layer)); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(to, "a/b/new"))
	var st unix.Stat_t
	serr := unix.Lstat(filepath.Join(to, "a/b/new"), &st)
	if err := errors.Join(err, serr); err != nil || string(data) != "content" || st.Mode&0o777 != 0o640 ||
		st.Uid != 7 || st.Gid != 8 {
		t.Errorf("new file = %q of %d:%d with mode %o, %v; want content of 7:8 with 640", data, st.Uid, st.Gid, st.Mode, err)
	}
	if link, err := os.Readlink(filepath.Join(to, "host")); err != nil || link != "/etc" {
		t.Errorf("link = %q, %v, want /etc", link, err)
	}
	if _, err := os.Lstat(filepath.Join(to, "bin/app")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("removed file: %v, want %v", err, os.ErrNotExist)
	}
	if err := s.Apply(t.Context(), "absent", &layer); err == nil {
		t.Error("Apply to a container without a root filesystem = nil, want an error")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	late := errors.New("late")
	cancel(late)
	if err := s.Apply(ctx, "to", bytes.NewReader(make([]byte, 4096))); !errors.Is(err, late) {
		t.Errorf("Apply past the deadline = %v, want %v", err, late)
	}
}

// TestHostileLayer: no name and no link in a layer leads out of the root filesystem.
func TestHostileLayer(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	s := open(t, config(t, reg.host))
	root := rootfs(t, s, "c", pull(t, s, reg.host+"/app:v1").ID)
	outside := t.TempDir()
	for name, entries := range map[string][]tar.Header{
		"path": {{Name: "../../../../../../../../../../../.." + outside + "/x", Typeflag: tar.TypeReg, Mode: 0o644}},
		"link": {
			{Name: "out", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "out/x", Typeflag: tar.TypeReg, Mode: 0o644},
		},
		"hard link": {{Name: "passwd", Typeflag: tar.TypeLink, Linkname: "../../../../../../../../../etc/passwd"}},
		"removal": {
			{Name: "gone", Typeflag: tar.TypeSymlink, Linkname: outside},
			{Name: "gone/.wh.kept", Typeflag: tar.TypeReg, Mode: 0o644},
		},
	} {
		if err := os.WriteFile(filepath.Join(outside, "kept"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		var layer bytes.Buffer
		w := tar.NewWriter(&layer)
		for _, h := range entries {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		_ = s.Apply(t.Context(), "c", &layer) // it may be refused, or stay inside
		if files, err := os.ReadDir(outside); err != nil || len(files) != 1 {
			t.Errorf("%s: %v outside, %v, want only the file that was there", name, files, err)
		}
		if _, err := os.Lstat(filepath.Join(root, "passwd")); err == nil {
			t.Errorf("%s: a file of the node is in the root filesystem", name)
		}
	}
}
