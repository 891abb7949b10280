package image_test

import (
	"crypto/rand"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image"
)

// TestLazyStoreDown: an image is not hidden while its store is not mounted; a container of it is refused with an error
// that says what to do, and podd check --images marks nothing. When the store is back the image can be used.
func TestLazyStoreDown(t *testing.T) {
	t.Parallel()
	reg, dir := newRegistry(t), newLayerDir(t)
	img := craftLazy(t, []string{"a"}, tree{"file": "x"})
	reg.push(t, "app:v1", img.Image)
	dir.add(reg.host+"/app", img, 0, tree{"file": "x"}, nil)
	cfg := config(t, reg.host)
	cfg.AdditionalLayerStore = filepath.Join(t.TempDir(), "store")
	bind := func() { mountBind(t, dir.root, cfg.AdditionalLayerStore) }
	bind()
	s := open(t, cfg)
	id := pull(t, s, reg.host+"/app:v1").ID
	if err := unix.Unmount(cfg.AdditionalLayerStore, 0); err != nil {
		t.Fatal(err)
	}
	_, err := s.Rootfs(t.Context(), image.RootfsRequest{ContainerID: "c", ImageID: id})
	if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "start the store") {
		t.Errorf("Rootfs() = %v, want that it is unavailable, and what to do", err)
	}
	if found, err := s.Verify(t.Context(), true); !errdefs.IsUnavailable(err) {
		t.Errorf("Verify() = %v, %v, want that the store is unavailable", found, err)
	}
	if _, err := s.Resolve(t.Context(), reg.host+"/app:v1"); err != nil {
		t.Errorf("the image is hidden: %v", err)
	}
	bind()
	if got := read(t, filepath.Join(rootfs(t, s, "c", id), "file")); got != "x" {
		t.Errorf("the file is %q, want x", got)
	}
}

// mountBind mounts a directory on another one, until the test ends or it is unmounted.
func mountBind(t *testing.T, from, to string) {
	t.Helper()
	if err := unix.Mkdir(to, 0o755); err != nil && err != unix.EEXIST {
		t.Fatal(err)
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(to, 0) })
}

// TestLazyLayerIsNotLoaded: a loaded image has the files of its archive, also if its layers are stored lazily, with a
// name and without.
func TestLazyLayerIsNotLoaded(t *testing.T) {
	t.Parallel()
	for name, annotations := range map[string]map[string]string{
		"with a name": {"io.containerd.image.name": "registry.test/loaded:v1"}, "without a name": nil,
	} {
		t.Run(name, func(t *testing.T) {
			reg, dir := newRegistry(t), newLayerDir(t)
			img := craftLazy(t, []string{"a", "b"}, tree{"file": "x"}, tree{"other": "y"})
			reg.push(t, "app:v1", img.Image)
			dir.add(reg.host+"/app", img, 0, tree{"file": "lazy"}, nil)
			dir.add(reg.host+"/app", img, 1, tree{"other": "lazy"}, nil)
			cfg := config(t, reg.host)
			cfg.AdditionalLayerStore = dir.root
			s := open(t, cfg)
			pull(t, s, reg.host+"/app:v1")
			layout, archive := t.TempDir(), filepath.Join(t.TempDir(), "oci.tar")
			writeLayout(t, layout, annotated{img: img.Image, annotations: annotations})
			tarDir(t, layout, archive)
			loaded, err := s.LoadFile(t.Context(), archive)
			if err != nil || len(loaded) != 1 || loaded[0].ID != imageID(t, img) {
				t.Fatalf("LoadFile() = %v, %v, want %s", loaded, err, imageID(t, img))
			}
			root := rootfs(t, s, "c", loaded[0].ID)
			if got := read(t, filepath.Join(root, "file")) + read(t, filepath.Join(root, "other")); got != "xy" {
				t.Errorf("the files are %q, want those of the archive", got)
			}
		})
	}
}

// TestLazySameLayerTwice: overlay refuses a directory twice, so layers with the same table of contents are fetched.
func TestLazySameLayerTwice(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]tree{"the same": {"file": "x"}, "another blob": {"file": "y"}} {
		t.Run(name, func(t *testing.T) {
			reg, dir := newRegistry(t), newLayerDir(t)
			img := craftLazy(t, []string{"a", "a"}, tree{"file": "x"}, second)
			reg.push(t, "app:v1", img.Image)
			dir.add(reg.host+"/app", img, 0, tree{"file": "x"}, nil)
			cfg := config(t, reg.host)
			cfg.AdditionalLayerStore = dir.root
			s := open(t, cfg)
			pulled := pull(t, s, reg.host+"/app:v1")
			if got := read(t, filepath.Join(rootfs(t, s, "c", pulled.ID), "file")); got != second["file"] {
				t.Errorf("the file is %q, want that of the upper layer, %q", got, second["file"])
			}
		})
	}
}

// TestLazyStoredForAnotherTar: a lazy layer is not that of an image whose config names another tar for the same table
// of contents.
func TestLazyStoredForAnotherTar(t *testing.T) {
	t.Parallel()
	reg, dir := newRegistry(t), newLayerDir(t)
	one := craftLazy(t, []string{"a"}, tree{"file": "x"})
	two := craftLazy(t, []string{"a"}, tree{"file": "y"})
	reg.push(t, "one:v1", one.Image)
	reg.push(t, "two:v1", two.Image)
	dir.add(reg.host+"/one", one, 0, tree{"file": "x"}, nil)
	cfg := config(t, reg.host)
	cfg.AdditionalLayerStore = dir.root
	s := open(t, cfg)
	pull(t, s, reg.host+"/one:v1")
	id := pull(t, s, reg.host+"/two:v1").ID
	if got := read(t, filepath.Join(rootfs(t, s, "c", id), "file")); got != "y" {
		t.Errorf("the file is %q, want that of the image's own layer", got)
	}
}

// TestLazyTooLarge: max_image_bytes applies also to an image whose layers are in the additional layer store.
func TestLazyTooLarge(t *testing.T) {
	t.Parallel()
	reg, dir := newRegistry(t), newLayerDir(t)
	raw := make([]byte, 2<<20)
	_, _ = rand.Read(raw) // never fails
	img := craftLazy(t, []string{"a"}, tree{"file": string(raw)})
	reg.push(t, "app:v1", img.Image)
	dir.add(reg.host+"/app", img, 0, tree{"file": "x"}, nil)
	cfg := config(t, reg.host)
	cfg.AdditionalLayerStore, cfg.MaxImageBytes = dir.root, 1<<20
	s := open(t, cfg)
	if got, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"}); err == nil {
		t.Errorf("Pull() = %v, want a refusal", got)
	}
}
