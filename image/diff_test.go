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
