package rootfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestWalkOfManyFiles: a directory with many files costs a walk little memory, and a cancelled walk ends at once.
func TestWalkOfManyFiles(t *testing.T) {
	const files, most = 50_000, 8 << 20
	dir := t.TempDir()
	fillDirectory(t, dir, files)
	w := walker{seen: map[uint64]bool{}}
	peak := watchHeap(t)
	if err := w.walk(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if got := peak(); got > most {
		t.Errorf("the walk took %d bytes of memory, want at most %d", got, most)
	}
	if w.total.Inodes != files+1 {
		t.Errorf("%d inodes, want %d", w.total.Inodes, files+1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	start := time.Now()
	if err := new(walker).walk(ctx, dir); err == nil {
		t.Error("a walk without time ended without an error")
	}
	if took := time.Since(start); took > time.Second/4 {
		t.Errorf("a cancelled walk took %v", took)
	}
}

// fillDirectory makes files with long names: names of one file, because that is fast.
func fillDirectory(t *testing.T, dir string, files int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(at)
	for i := range files {
		if err := unix.Mknodat(at, fmt.Sprintf("%0200d", i), unix.S_IFREG|0o600, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// watchHeap returns a function that returns how much the heap has grown at most since.
func watchHeap(t *testing.T) func() int64 {
	t.Helper()
	runtime.GC()
	var start runtime.MemStats
	runtime.ReadMemStats(&start)
	before := int64(start.HeapAlloc)
	stop, result := make(chan struct{}), make(chan int64)
	go func() {
		var most int64
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, int64(m.HeapAlloc)-before)
			select {
			case <-stop:
				result <- most
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() int64 { close(stop); return <-result }
}

// TestWalkOfDeepTree: directories that are nested deeper than paths can be long are counted too, with few open at a
// time, and little memory for their names.
func TestWalkOfDeepTree(t *testing.T) {
	const depth, most = 20 * maxOpenDirs, 8 << 20
	dir := t.TempDir()
	makeDeepTree(t, dir, depth)
	limitOpenFiles(t, maxOpenDirs+128)
	w := walker{seen: map[uint64]bool{}}
	peak := watchHeap(t)
	if err := w.walk(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if got := peak(); got > most {
		t.Errorf("the walk took %d bytes of memory, want at most %d", got, most)
	}
	if w.total.Inodes != depth+1 || w.cut {
		t.Errorf("%d inodes, cut %v, want %d", w.total.Inodes, w.cut, depth+1)
	}
}

// TestWalkOfWideAndDeepTree: more directories than are remembered cost a walk nothing more; some are not counted.
func TestWalkOfWideAndDeepTree(t *testing.T) {
	dir := t.TempDir()
	makeDeepTree(t, dir, 8*maxOpenDirs)
	limitOpenFiles(t, maxOpenDirs+128)
	w := walker{seen: map[uint64]bool{}, deferred: make([]unix.FileHandle, maxDeferred)}
	top, err := openDir(unix.AT_FDCWD, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.directory(t.Context(), top, 1); err != nil {
		t.Fatal(err)
	}
	if w.total.Inodes != maxOpenDirs || !w.cut {
		t.Errorf("%d inodes, cut %v, want %d and that the rest is not counted", w.total.Inodes, w.cut, maxOpenDirs)
	}
}

// TestRemoveDeepTree: what os.RemoveAll cannot remove, because it has all directories open from the top to the bottom.
func TestRemoveDeepTree(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	outside := filepath.Join(t.TempDir(), "outside")
	makeDeepTree(t, filepath.Join(top, "one"), 10*maxOpenDirs)
	makeDeepTree(t, filepath.Join(top, "two"), 10*maxOpenDirs)
	fillDirectory(t, top, 3*walkBatch)
	for _, err := range []error{
		os.Mkdir(outside, 0o755), os.WriteFile(filepath.Join(outside, "file"), nil, 0o600),
		os.Symlink(outside, filepath.Join(top, "link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	limitOpenFiles(t, maxOpenDirs+128)
	for range 2 { // the second time nothing is there
		if err := removeTree(top); err != nil {
			t.Errorf("removeTree: %.200v", err)
		}
	}
	if _, err := os.Lstat(top); !os.IsNotExist(err) {
		t.Errorf("Lstat of the removed tree: %v, want that it does not exist", err)
	}
	if _, err := os.Stat(filepath.Join(outside, "file")); err != nil {
		t.Errorf("a file behind a symbolic link: %v, want it untouched", err)
	}
}

// makeDeepTree makes directories with long names in each other below dir, from the deepest to the top.
func makeDeepTree(t *testing.T, dir string, depth int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeTree(dir); err != nil {
			t.Errorf("removeTree: %.200v", err)
		}
	})
	name := strings.Repeat("n", 200)
	inner, outer := filepath.Join(dir, name), filepath.Join(dir, "new")
	if err := os.Mkdir(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	for range depth - 1 {
		err := errors.Join(os.Mkdir(outer, 0o700), os.Rename(inner, filepath.Join(outer, name)), os.Rename(outer, inner))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// limitOpenFiles limits the open files of this process during a test.
func limitOpenFiles(t *testing.T, most uint64) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) })
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
}
