package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
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
	if w.total.inodes != files+1 {
		t.Errorf("%d inodes, want %d", w.total.inodes, files+1)
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
	before := heap()
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
// time.
func TestWalkOfDeepTree(t *testing.T) {
	const depth = 3 * maxOpenDirs
	dir := t.TempDir()
	at, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range depth {
		if err := at.Mkdir("directory", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := at.OpenRoot("directory")
		at.Close()
		if err != nil {
			t.Fatal(err)
		}
		at = next
	}
	if err := at.WriteFile("file", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	at.Close()
	w := walker{seen: map[uint64]bool{}}
	if err := w.walk(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if w.total.inodes != depth+2 {
		t.Errorf("%d inodes, want %d", w.total.inodes, depth+2)
	}
	if err := os.RemoveAll(filepath.Join(dir, "directory")); err != nil {
		t.Error(err)
	}
}
