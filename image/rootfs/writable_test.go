package rootfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// fakeWritables returns sizes and takes times from the maps, in the fake time of synctest.
func fakeWritables(age time.Duration, sizes map[string]Size, took map[string]time.Duration) (*writable, *measured) {
	log := &measured{count: map[string]int{}}
	w := &writable{age: age, root: "/", requested: make(chan struct{}, 1), samples: map[string]sample{}}
	w.total.Store(&Usage{})
	w.list = func() ([]string, error) {
		var ids []string
		for id := range sizes {
			ids = append(ids, id)
		}
		return ids, nil
	}
	w.measure = func(ctx context.Context, id string) Size {
		sleep(ctx, took[id])
		log.add(id)
		return sizes[id]
	}
	return w, log
}

// measured counts measurements by container.
type measured struct {
	mu    sync.Mutex
	count map[string]int
}

func (m *measured) add(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count[id]++
}

func (m *measured) of(id string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count[id]
}

// TestWritableRate: a layer that takes long is measured rarely, and all together take at most a tenth of the time.
func TestWritableRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, log := fakeWritables(10*time.Second, map[string]Size{"small": {1, 1}, "huge": {1 << 40, 1 << 20}},
			map[string]time.Duration{"huge": 5 * time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.run(ctx)
		end := time.Now().Add(20 * time.Minute)
		for time.Now().Before(end) {
			w.touch()
			time.Sleep(time.Minute)
		}
		// 20 minutes have 1200 s / (500 s + 5 s) measurements of the huge layer, each of which takes 50 s with the idle
		// time.
		if huge, small := log.of("huge"), log.of("small"); huge != 3 || small < 80 || small > 120 {
			t.Errorf("measured huge %d times, small %d times, want 3 and about 100", huge, small)
		}
		if f, ok := w.get("huge"); !ok || f.Bytes != 1<<40 || f.Inodes != 1<<20 || f.At.IsZero() {
			t.Errorf("get(huge) = %+v, %v, want 1<<40 bytes and 1<<20 inodes", f, ok)
		}
		if total := w.total.Load(); total.Bytes != 1<<40+1 || total.Inodes != 1<<20+1 || time.Since(total.At) < time.Second {
			t.Errorf("total = %+v, want 1<<40+1 bytes and 1<<20+1 inodes, older than 1s", total)
		}
	})
}

// TestWritableIdle: without a kubelet the measurements stop, and they start again when one is back.
func TestWritableIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, log := fakeWritables(10*time.Second, map[string]Size{"c": {}}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.run(ctx)
		w.touch()
		time.Sleep(rwKeepMeasuring + time.Minute)
		n := log.of("c")
		if n < 23 || n > 31 {
			t.Errorf("measured %d times in five minutes, want 23 to 31", n)
		}
		time.Sleep(time.Hour)
		if more := log.of("c") - n; more != 0 {
			t.Errorf("measured %d times without a request, want 0", more)
		}
		w.get("c")
		synctest.Wait()
		if log.of("c") != n+1 {
			t.Error("no measurement after a new request, want one")
		}
	})
}

func TestWritableForgets(t *testing.T) {
	sizes := map[string]Size{"a": {1, 1}, "b": {2, 2}}
	w, _ := fakeWritables(0, sizes, nil)
	w.round(t.Context())
	delete(sizes, "a")
	w.round(t.Context())
	if _, ok := w.get("a"); ok {
		t.Error("a container that is gone has a figure")
	}
	if total := w.total.Load(); total.Bytes != 2 {
		t.Errorf("total = %+v, want 2 bytes", total)
	}
}

// testMounts returns Mounts in a new directory.
func testMounts(t *testing.T, stored func(image string) bool) *Mounts {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "rootfs")
	if err := os.Mkdir(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return New(root, dir, stored, logrus.StandardLogger())
}

func TestWritable(t *testing.T) {
	m := testMounts(t, func(string) bool { return true })
	if _, ok := m.Writable("c"); ok {
		t.Error("a container that is not there has a figure")
	}
	path, err := m.Make(t.Context(), Request{
		Container: "c", Name: Root, Image: "i", Layers: layersOnDisk(t, t.TempDir(), 1), Writable: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Release("c"); err != nil {
			t.Error(err)
		}
	})
	fresh, ok := m.Writable("c")
	if !ok || fresh.Inodes != 1 || fresh.Bytes > 64<<10 || fresh.Mountpoint != filepath.Dir(m.dir) || fresh.At.IsZero() {
		t.Fatalf("Writable of a new container = %+v, %v, want 1 inode in %s", fresh, ok, filepath.Dir(m.dir))
	}
	for i := range 10 {
		if err := os.WriteFile(filepath.Join(path, fmt.Sprint(i)), []byte(strings.Repeat("x", 1<<16)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m.writable.age = 0
	m.writable.samples = map[string]sample{}
	m.writable.round(t.Context())
	got, _ := m.Writable("c")
	if got.Inodes != 11 || got.Bytes < 10<<16 || got.Bytes > 12<<16 {
		t.Errorf("Writable after writing = %+v, want 11 inodes and 10 to 12 blocks of 64 KiB", got)
	}
	if total := m.WritableTotal(); total.Inodes != got.Inodes || total.Bytes != got.Bytes {
		t.Errorf("WritableTotal = %+v, want %+v", total, got)
	}
}

// TestMakeOfRemovedImage: an image that was removed since it was looked up is not mounted, and does not count as used.
func TestMakeOfRemovedImage(t *testing.T) {
	m := testMounts(t, func(string) bool { return false })
	r := Request{Container: "c", Name: Root, Image: "i", Layers: layersOnDisk(t, t.TempDir(), 1), Writable: true}
	if path, err := m.Make(t.Context(), r); !errdefs.IsNotFound(err) {
		t.Errorf("Make = %q, %v, want %v", path, err, errdefs.ErrNotFound)
	}
	if users := m.Users.Of("i"); len(users) > 0 {
		t.Errorf("users of the image = %q, want none", users)
	}
}

// TestMakeFails: a filesystem that cannot be mounted leaves neither a directory nor a user of the image.
func TestMakeFails(t *testing.T) {
	m := testMounts(t, func(string) bool { return true })
	failed := errors.New("failed")
	path, err := m.Make(t.Context(), Request{
		Container: "c", Name: Root, Image: "i", Layers: layersOnDisk(t, t.TempDir(), 1), Writable: true,
		Mount: func(Overlay) error { return failed },
	})
	if !errors.Is(err, failed) {
		t.Errorf("Make = %q, %v, want %v", path, err, failed)
	}
	held, err := m.Containers()
	if err != nil || len(held) > 0 || len(m.Users.Of("i")) > 0 {
		t.Errorf("containers = %q, %v, users = %q, want none", held, err, m.Users.Of("i"))
	}
	if path, err := m.Make(t.Context(), Request{Container: "../c", Name: Root}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("Make for a bad id = %q, %v, want %v", path, err, errdefs.ErrInvalidArgument)
	}
}

// TestRecover: a new start knows the users of images, and finishes a deletion.
func TestRecover(t *testing.T) {
	m := testMounts(t, func(string) bool { return true })
	r := Request{Container: "c", Name: Volume(3), Image: "i", Layers: layersOnDisk(t, t.TempDir(), 1)}
	if _, err := m.Make(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	trash := filepath.Join(m.dir, trashPrefix+"gone")
	if err := os.MkdirAll(filepath.Join(trash, Root, mergedName), 0o700); err != nil {
		t.Fatal(err)
	}
	next := New(filepath.Dir(m.dir), m.dir, m.stored, m.log)
	if err := next.Recover(); err != nil {
		t.Fatal(err)
	}
	if got := next.Users.Of("i"); !slices.Equal(got, []string{"c"}) {
		t.Errorf("users = %q, want c", got)
	}
	if _, err := os.Stat(trash); !os.IsNotExist(err) {
		t.Errorf("Stat of an interrupted deletion: %v, want %v", err, os.ErrNotExist)
	}
	if err := next.Release("c"); err != nil || len(next.Users.Of("i")) > 0 {
		t.Errorf("Release = %v, users = %q, want neither", err, next.Users.Of("i"))
	}
}

// TestWalkStaysInside: a container that replaces a directory by a link gets no information about the node.
func TestWalkStaysInside(t *testing.T) {
	outside, inside := t.TempDir(), t.TempDir()
	for i := range 100 {
		if err := os.WriteFile(filepath.Join(outside, fmt.Sprint(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(inside, "link")); err != nil {
		t.Fatal(err)
	}
	if got := Measure(t.Context(), inside, logrus.StandardLogger()); got.Inodes != 2 {
		t.Errorf("walk = %+v, want 2 inodes", got)
	}
}

func TestFilesystem(t *testing.T) {
	m := testMounts(t, nil)
	d := m.Filesystem()
	var st unix.Stat_t
	if err := unix.Stat(m.dir, &st); err != nil {
		t.Fatal(err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(m.dir, &fs); err != nil {
		t.Fatal(err)
	}
	block := uint64(fs.Bsize)
	if d.Bytes != fs.Blocks*block || d.InodesFree > d.Inodes || d.At.IsZero() || unix.Mkdev(d.Major, d.Minor) != st.Dev {
		t.Errorf("Filesystem = %+v, want the size %d and device %d", d, fs.Blocks*block, st.Dev)
	}
	if free := fs.Bfree * block; d.BytesFree == 0 || d.BytesFree > free+1<<30 { // others write
		t.Errorf("Filesystem = %+v, want at most %d free", d, free)
	}
}

// TestFilesystemIsFollowed: the figure is renewed without a request, and kept while the disk cannot be read.
func TestFilesystemIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := fakeWritables(10*time.Second, nil, nil)
		w.root = t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.watchDisk(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		d := *w.disk.Load()
		if age := time.Since(d.At); d.Bytes == 0 || age > 10*time.Second {
			t.Errorf("disk = %+v, %v old, want at most 10 s", d, age)
		}
		if err := os.Remove(w.root); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if now := *w.disk.Load(); now != d {
			t.Errorf("disk = %+v after errors, want %+v", now, d)
		}
	})
}
