package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// fakeWritables returns sizes and takes times from the maps, in the fake time of synctest.
func fakeWritables(age time.Duration, sizes map[string]diskSize, took map[string]time.Duration) (*rwUsage, *measured) {
	log := &measured{count: map[string]int{}}
	w := &rwUsage{age: age, root: "/", requested: make(chan struct{}, 1), samples: map[string]sample{}}
	w.total.Store(&FsUsage{})
	w.list = func(context.Context) ([]string, error) {
		var ids []string
		for id := range sizes {
			ids = append(ids, id)
		}
		return ids, nil
	}
	w.measure = func(ctx context.Context, id string) diskSize {
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
		w, log := fakeWritables(10*time.Second, map[string]diskSize{"small": {1, 1}, "huge": {1 << 40, 1 << 20}},
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
		w, log := fakeWritables(10*time.Second, map[string]diskSize{"c": {}}, nil)
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
	sizes := map[string]diskSize{"a": {1, 1}, "b": {2, 2}}
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

func TestWritable(t *testing.T) {
	s := testStore(t, nil)
	id := plant(t, s, `{"os":"linux"}`, "example.org/a:1")
	if err := s.refresh(); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Writable("c"); ok {
		t.Error("a container that is not there has a figure")
	}
	path, err := s.Rootfs(t.Context(), RootfsRequest{ContainerID: "c", ImageID: id})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Release(context.Background(), "c") })
	fresh, ok := s.Writable("c")
	if !ok || fresh.Inodes != 1 || fresh.Bytes > 64<<10 || fresh.Mountpoint != s.layout.Root || fresh.At.IsZero() {
		t.Fatalf("Writable of a new container = %+v, %v, want 1 inode in %s", fresh, ok, s.layout.Root)
	}
	for i := range 10 {
		if err := os.WriteFile(filepath.Join(path, fmt.Sprint(i)), []byte(strings.Repeat("x", 1<<16)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	again := newRWUsage(s, 0)
	again.round(t.Context())
	got, _ := again.get("c")
	if got.Inodes != 11 || got.Bytes < 10<<16 || got.Bytes > 12<<16 {
		t.Errorf("Writable after writing = %+v, want 11 inodes and 10 to 12 blocks of 64 KiB", got)
	}
	if _, containers, err := s.Usage(t.Context()); err != nil || len(containers) != 1 {
		t.Errorf("Usage = %v, %v, want one filesystem", containers, err)
	}
}

// TestWalkStaysInside: a container that replaces a directory by a link gets no information about the node.
func TestWalkStaysInside(t *testing.T) {
	s := testStore(t, nil)
	outside, inside := t.TempDir(), t.TempDir()
	for i := range 100 {
		if err := os.WriteFile(filepath.Join(outside, fmt.Sprint(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(inside, "link")); err != nil {
		t.Fatal(err)
	}
	if got := s.usage.walk(t.Context(), inside); got.inodes != 2 {
		t.Errorf("walk = %+v, want 2 inodes", got)
	}
}

func TestFilesystem(t *testing.T) {
	s := testStore(t, nil)
	d := s.Filesystem()
	var st unix.Stat_t
	if err := unix.Stat(s.layout.Root, &st); err != nil {
		t.Fatal(err)
	}
	if d.Bytes == 0 || d.InodesFree > d.Inodes || d.At.IsZero() || unix.Mkdev(d.Major, d.Minor) != st.Dev {
		t.Errorf("Filesystem = %+v, want sizes and device %d", d, st.Dev)
	}
}
