// Package imagetest has Suite, which checks how root filesystems are made of images, and Fake, which passes it without
// storage, registries or mounts. The tests of sandbox and server/adapt_test.go run the engine on Fake. Only tests may
// import it.
package imagetest

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/image"
)

// Images is the interface under test: the engine's view of image.Store, and its leftovers.
type Images interface {
	Resolve(ctx context.Context, ref string) (*image.Image, error)
	Rootfs(ctx context.Context, r image.RootfsRequest) (string, error)
	Volume(ctx context.Context, r image.VolumeRequest) (string, error)
	Release(ctx context.Context, containerID string) error
	ContainersWithMounts(ctx context.Context) ([]string, error)
}

// Ref and Digest are the names of the only image in the store under test.
const (
	Ref  = "registry.test/suite/hello:v1"
	Repo = "registry.test/suite/hello"
)

// Files are in the root of that image, Env in its config.
var (
	files = map[string]string{"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "bin/hello": "#!/bin/sh\necho hello\n"}
	env   = []string{"PATH=/bin", "GREETING=hello"}
)

// Files returns the files in the root of the suite's image: path to content.
func Files() map[string]string {
	out := map[string]string{}
	maps.Copy(out, files)
	return out
}

// Config returns the config of the suite's image.
func Config() v1.ImageConfig {
	return v1.ImageConfig{Env: slices.Clone(env), Entrypoint: []string{"/bin/hello"}, User: "root"}
}

// Suite runs the tests that every Images must pass. Open returns one that has only the image Ref, with Files and
// Config; it is called once per test.
func Suite(t *testing.T, open func(t *testing.T) Images) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Images)
	}{
		{"Resolve", testResolve},
		{"ResolveNothing", testResolveNothing},
		{"Rootfs", testRootfs},
		{"RootfsIsWritableAndItsOwn", testRootfsPrivate},
		{"RootfsAgainStartsAfresh", testRootfsAgain},
		{"RootfsInUserNamespace", testRootfsUserns},
		{"Volume", testVolume},
		{"ReleaseIsIdempotent", testRelease},
		{"BadRequests", testBadRequests},
		{"Concurrent", testConcurrent},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

func testResolve(t *testing.T, images Images) {
	img := resolve(t, images, Ref)
	if len(img.ID) != 64 || strings.Trim(img.ID, "0123456789abcdef") != "" {
		t.Errorf("id %q is not 64 hex digits", img.ID)
	}
	if !slices.Equal(img.Tags, []string{Ref}) {
		t.Errorf("tags %q, want %q", img.Tags, Ref)
	}
	if len(img.Digests) != 1 || !strings.HasPrefix(img.Digests[0], Repo+"@sha256:") {
		t.Fatalf("digests %q, want one of %s", img.Digests, Repo)
	}
	if !slices.Equal(img.Config.Env, env) {
		t.Errorf("env %q, want %q", img.Config.Env, env)
	}
	for _, ref := range []string{img.ID, "sha256:" + img.ID, img.ID[:12], img.ID[:4], "sha256:" + img.ID[:12],
		img.Digests[0]} {
		if got := resolve(t, images, ref); got.ID != img.ID {
			t.Errorf("Resolve(%q) is image %s, want %s", ref, got.ID, img.ID)
		}
	}
}

func testResolveNothing(t *testing.T, images Images) {
	img := resolve(t, images, Ref)
	for _, ref := range []string{
		Repo, Repo + ":v2", "hello:v1", "registry.test/other", strings.Repeat("0", 64), "sha256:" + strings.Repeat("0", 64),
		Repo + "@sha256:" + strings.Repeat("0", 64), img.ID[:3], "0000beef",
	} {
		if _, err := images.Resolve(t.Context(), ref); !errdefs.IsNotFound(err) {
			t.Errorf("Resolve(%q): %v, want not found", ref, err)
		}
	}
	for _, ref := range []string{"", "UPPER/case", "a b"} {
		if _, err := images.Resolve(t.Context(), ref); !errdefs.IsInvalidArgument(err) {
			t.Errorf("Resolve(%q): %v, want invalid argument", ref, err)
		}
	}
}

func testRootfs(t *testing.T, images Images) {
	img := resolve(t, images, Ref)
	for _, ref := range []string{img.ID, Ref} {
		path, err := images.Rootfs(t.Context(), image.RootfsRequest{ContainerID: "c1", ImageID: ref})
		if err != nil {
			t.Fatal(err)
		}
		checkFiles(t, path)
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o555 != 0o555 {
			t.Errorf("root of the filesystem: %v %v, want it open to everyone", info.Mode(), err)
		}
	}
	checkHeld(t, images, "c1")
	release(t, images, "c1")
	checkHeld(t, images)
}

func testRootfsPrivate(t *testing.T, images Images) {
	one, two := rootfs(t, images, "one"), rootfs(t, images, "two")
	if err := os.WriteFile(filepath.Join(one, "etc/passwd"), []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(one, "bin/hello")); err != nil {
		t.Fatal(err)
	}
	checkFiles(t, two)
	checkFiles(t, rootfs(t, images, "three"))
	for _, id := range []string{"one", "two", "three"} {
		release(t, images, id)
	}
	checkHeld(t, images)
}

func testRootfsAgain(t *testing.T, images Images) {
	path := rootfs(t, images, "again")
	if err := os.WriteFile(filepath.Join(path, "left-over"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	path = rootfs(t, images, "again")
	checkFiles(t, path)
	if _, err := os.Lstat(filepath.Join(path, "left-over")); !os.IsNotExist(err) {
		t.Errorf("a file of the earlier root filesystem is there: %v", err)
	}
	release(t, images, "again")
	checkHeld(t, images)
}

func testRootfsUserns(t *testing.T, images Images) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 200000, Size: 65536}}
	request := image.RootfsRequest{ContainerID: "userns", ImageID: Ref, UIDs: ids, GIDs: ids}
	path, err := images.Rootfs(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	checkFiles(t, path)
	for _, name := range []string{".", "etc", "etc/passwd", "bin/hello"} {
		info, err := os.Lstat(filepath.Join(path, name))
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); st.Uid != 200000 || st.Gid != 200000 {
			t.Errorf("%s belongs to %d:%d, want 200000:200000", name, st.Uid, st.Gid)
		}
	}
	release(t, images, "userns")
	checkHeld(t, images)
}

func testVolume(t *testing.T, images Images) {
	root := rootfs(t, images, "vol")
	for i := range 3 {
		path, err := images.Volume(t.Context(), image.VolumeRequest{ContainerID: "vol", Index: i, ImageID: Ref})
		if err != nil {
			t.Fatal(err)
		}
		if path == root {
			t.Errorf("volume %d is at the root filesystem's path", i)
		}
		checkFiles(t, path)
	}
	checkFiles(t, root)
	checkHeld(t, images, "vol")
	release(t, images, "vol")
	checkHeld(t, images)

	// A volume does not need a root filesystem.
	if _, err := images.Volume(t.Context(), image.VolumeRequest{ContainerID: "alone", ImageID: Ref}); err != nil {
		t.Fatal(err)
	}
	release(t, images, "alone")
	checkHeld(t, images)
}

func testRelease(t *testing.T, images Images) {
	release(t, images, "never-seen")
	path := rootfs(t, images, "twice")
	release(t, images, "twice")
	release(t, images, "twice")
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", path, err)
	}
	checkHeld(t, images)
}

func testBadRequests(t *testing.T, images Images) {
	for _, id := range []string{"", "..", "a/b", "../x", ".hidden", strings.Repeat("x", 65)} {
		if _, err := images.Rootfs(t.Context(), image.RootfsRequest{ContainerID: id,
			ImageID: Ref}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("Rootfs of container %q: %v, want invalid argument", id, err)
		}
		if err := images.Release(t.Context(), id); !errdefs.IsInvalidArgument(err) {
			t.Errorf("Release of container %q: %v, want invalid argument", id, err)
		}
	}
	missing := strings.Repeat("0", 64)
	if _, err := images.Rootfs(t.Context(), image.RootfsRequest{ContainerID: "x",
		ImageID: missing}); !errdefs.IsNotFound(err) {
		t.Errorf("Rootfs of a missing image: %v, want not found", err)
	}
	if _, err := images.Volume(t.Context(), image.VolumeRequest{ContainerID: "x",
		ImageID: missing}); !errdefs.IsNotFound(err) {
		t.Errorf("Volume of a missing image: %v, want not found", err)
	}
	checkHeld(t, images)
}

func testConcurrent(t *testing.T, images Images) {
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			id := "c" + string(rune('a'+i))
			for range 5 {
				path, err := images.Rootfs(t.Context(), image.RootfsRequest{ContainerID: id, ImageID: Ref})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := os.Stat(filepath.Join(path, "bin/hello")); err != nil {
					t.Error(err)
				}
				if err := images.Release(t.Context(), id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	checkHeld(t, images)
}

func resolve(t *testing.T, images Images, ref string) *image.Image {
	t.Helper()
	img, err := images.Resolve(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func rootfs(t *testing.T, images Images, container string) string {
	t.Helper()
	path, err := images.Rootfs(t.Context(), image.RootfsRequest{ContainerID: container, ImageID: Ref})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func release(t *testing.T, images Images, container string) {
	t.Helper()
	if err := images.Release(t.Context(), container); err != nil {
		t.Fatal(err)
	}
}

func checkHeld(t *testing.T, images Images, want ...string) {
	t.Helper()
	got, err := images.ContainersWithMounts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("held for containers %q, want %q", got, want)
	}
}

// checkFiles compares a root filesystem with the image's files.
func checkFiles(t *testing.T, root string) {
	t.Helper()
	for path, want := range files {
		got, err := fs.ReadFile(os.DirFS(root), path)
		if err != nil {
			t.Error(err)
			continue
		}
		if string(got) != want {
			t.Errorf("%s has %q, want %q", path, got, want)
		}
	}
}
