package image_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image"
)

// TestRestart: a second store on the same directory finds images, mounts and images in use.
func TestRestart(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "content"))
	cfg := config(t, reg.host)
	first, err := image.New(cfg.Config, cfg.Node, logrus.StandardLogger())
	if err != nil {
		t.Fatal(err)
	}
	img := pull(t, first, reg.host+"/app:v1")
	path := rootfs(t, first, "kept", img.ID)
	writeFile(t, path+"/written", "by the container")
	rootfs(t, first, "orphan", img.ID)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}

	s := open(t, cfg)
	again, err := s.Resolve(t.Context(), reg.host+"/app:v1")
	if err != nil || again.ID != img.ID || !slices.Equal(again.Digests, img.Digests) || again.Size != img.Size {
		t.Errorf("image after the restart: %+v %v, want %+v", again, err, img)
	}
	checkFile(t, path+"/bin/app", "content")
	checkFile(t, path+"/written", "by the container")
	if held, err := s.ContainersWithMounts(t.Context()); err != nil || !slices.Equal(held, []string{"kept", "orphan"}) {
		t.Errorf("ContainersWithMounts = %v, %v, want [kept orphan]", held, err)
	}
	if err := s.Remove(t.Context(), img.ID); !errdefs.IsFailedPrecondition(err) ||
		!strings.Contains(err.Error(), "kept, orphan") {
		t.Errorf("Remove after the restart = %v, want a failed precondition that names the containers", err)
	}
	for _, id := range []string{"orphan", "kept"} {
		if err := s.Release(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if err := s.Remove(t.Context(), img.ID); err != nil {
		t.Error(err)
	}
}

// TestReboot: the mounts are gone, the directories are not.
func TestReboot(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "content"))
	cfg := config(t, reg.host)
	first, err := image.New(cfg.Config, cfg.Node, logrus.StandardLogger())
	if err != nil {
		t.Fatal(err)
	}
	img := pull(t, first, reg.host+"/app:v1")
	path := rootfs(t, first, "c", img.ID)
	writeFile(t, path+"/written", "x")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(cfg.RunRoot); err != nil {
		t.Fatal(err)
	}
	s := open(t, cfg)
	if path := rootfs(t, s, "c", img.ID); fileExists(path + "/written") {
		t.Error("the root filesystem did not start afresh")
	}
	if err := s.Release(t.Context(), "c"); err != nil {
		t.Error(err)
	}
}

func fileExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestCrash: incomplete state of every kind. None prevents the store from opening, and all can be released or made
// again.
func TestCrash(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "content"))
	cfg := config(t, reg.host)
	first, err := image.New(cfg.Config, cfg.Node, logrus.StandardLogger())
	if err != nil {
		t.Fatal(err)
	}
	img := pull(t, first, reg.host+"/app:v1")
	mounted := rootfs(t, first, "deleting", img.ID)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cfg.Root, "rootfs")
	// In the middle of a deletion, once with the mount still there.
	if err := os.Rename(filepath.Join(dir, "deleting"), filepath.Join(dir, ".del-deleting")); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, ".del-other/root/diff/file"), "x")
	// In the middle of a creation, after each step.
	for _, half := range []string{"empty/", "no-record/root/", "bad-record/root/record.json", "no-mount/root/merged/"} {
		if strings.HasSuffix(half, "/") {
			if err := os.MkdirAll(filepath.Join(dir, half), 0o700); err != nil {
				t.Fatal(err)
			}
			continue
		}
		writeFile(t, filepath.Join(dir, half), "{")
	}
	mapped := filepath.Join(dir, "mapped/root/mapped")
	if err := os.MkdirAll(mapped, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(cfg.Root+"/overlay", mapped, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(cfg.Root, "tmp/container_images_storage1/1"), "half a layer")

	s := open(t, cfg)
	checkNoFiles(t, filepath.Join(cfg.Root, "tmp"))
	if fileExists(mounted) || fileExists(filepath.Join(dir, ".del-deleting")) ||
		fileExists(filepath.Join(dir, ".del-other")) {
		t.Error("an interrupted deletion was not finished")
	}
	halves := []string{"bad-record", "empty", "mapped", "no-mount", "no-record"}
	if held, err := s.ContainersWithMounts(t.Context()); err != nil || !slices.Equal(held, halves) {
		t.Errorf("held %v %v, want %v", held, err, halves)
	}
	for _, id := range halves {
		checkFile(t, rootfs(t, s, id, img.ID)+"/bin/app", "content")
		if err := s.Release(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(cfg.Root, "overlay")); err != nil {
		t.Errorf("the deletion followed a mount: %v", err)
	}
	checkFile(t, rootfs(t, s, "after", img.ID)+"/bin/app", "content")
}

// TestBrokenImage: only an unreadable image itself is not listed, and it can be pulled again.
func TestBrokenImage(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	broken := simple(t, "one")
	reg.push(t, "broken:v1", broken)
	reg.push(t, "fine:v1", simple(t, "two"))
	cfg := config(t, reg.host)
	first, err := image.New(cfg.Config, cfg.Node, logrus.StandardLogger())
	if err != nil {
		t.Fatal(err)
	}
	pull(t, first, reg.host+"/broken:v1")
	fine := pull(t, first, reg.host+"/fine:v1")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	blobs, err := filepath.Glob(filepath.Join(cfg.Root, "overlay-images", imageID(t, broken), "=*"))
	if err != nil || len(blobs) == 0 {
		t.Fatalf("no blobs found: %v", err)
	}
	for _, blob := range blobs {
		writeFile(t, blob, "") // what a power loss leaves
	}
	s := open(t, cfg)
	list, err := s.List(t.Context())
	if err != nil || len(list) != 1 || list[0].ID != fine.ID {
		t.Errorf("List = %v, %v, want %s", list, err, fine.ID)
	}
	if got := pull(t, s, reg.host+"/broken:v1"); got.ID != imageID(t, broken) {
		t.Errorf("pulled image %s, want %s", got.ID, imageID(t, broken))
	}
}

func TestNewErrors(t *testing.T) {
	t.Parallel()
	file := config(t)
	writeFile(t, file.Root, "a file")
	if _, err := image.New(file.Config, file.Node, logrus.StandardLogger()); err == nil {
		t.Error("opened a store on a file")
	}
	corrupt := config(t)
	writeFile(t, filepath.Join(corrupt.Root, "overlay-images/images.json"), "{")
	if s, err := image.New(corrupt.Config, corrupt.Node, logrus.StandardLogger()); err == nil {
		t.Error("opened a store with an unreadable list of images")
		closeStore(t, s)
	}
}

// TestUsage: layers count once, with their allocated size, until they are deleted.
func TestUsage(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	base := tree{"base": strings.Repeat("b", 1<<20)}
	reg.push(t, "one:v1", craft(t, nil, base, tree{"own": strings.Repeat("1", 1<<19)}))
	reg.push(t, "two:v1", craft(t, nil, base, tree{"own": strings.Repeat("2", 1<<18)}))
	cfg := config(t, reg.host)
	s := open(t, cfg)
	one := pull(t, s, reg.host+"/one:v1")
	pull(t, s, reg.host+"/two:v1")
	const layers = 1<<20 + 1<<19 + 1<<18
	eventually(t, "every layer was measured once", func() bool {
		got := imageUsage(t, s)
		return got.Bytes >= layers && got.Bytes < layers+200<<10 && got.Inodes >= 6 && got.Inodes < 100
	})
	path := rootfs(t, s, "c", one.ID)
	writeFile(t, path+"/written", strings.Repeat("w", 1<<20))
	if got := imageUsage(t, s); got.Mountpoint != cfg.Root || got.At.IsZero() || got.Bytes > layers+200<<10 {
		t.Errorf("image usage after a container wrote = %+v, want at most %d bytes in %s", got, layers+200<<10, cfg.Root)
	}
	checkDisk(t, s, one.ID)
	if err := s.Release(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), one.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a removed image takes no space", func() bool {
		return imageUsage(t, s).Bytes < layers-1<<19+200<<10
	})
}

// checkDisk checks the space of both images: they share a layer of 1 MiB, and one has a container.
func checkDisk(t *testing.T, s *image.Store, one string) {
	t.Helper()
	d := s.Disk()
	near := func(got, want uint64) bool { return got >= want && got < want+100<<10 }
	if len(d.Images) != 2 || !near(d.Layers, 1<<20+1<<19+1<<18) {
		t.Errorf("Disk() = %+v, want two images and the layers, each once", d)
	}
	for _, i := range d.Images {
		own, users := uint64(1<<18), 0
		if i.ID == one {
			own, users = 1<<19, 1
		}
		if !near(i.Bytes, 1<<20+own) || !near(i.Unique, own) || i.UsedBy != users {
			t.Errorf("image %v: %d bytes, %d unique, %d users; want %d, %d, %d", i.Tags, i.Bytes, i.Unique, i.UsedBy,
				1<<20+own, own, users)
		}
	}
}

func imageUsage(t *testing.T, s *image.Store) image.FsUsage {
	t.Helper()
	images, _, err := s.Usage(t.Context())
	if err != nil || len(images) != 1 {
		t.Fatalf("Usage = %+v, %v, want one filesystem", images, err)
	}
	return images[0]
}
