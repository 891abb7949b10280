package usage

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOpenFiles(t *testing.T) {
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	defer w.Close()
	o := openFiles(os.Getpid(), []int{os.Getpid(), 1 << 30})
	if o.Files == nil || *o.Files < 5 || o.Sockets == nil || *o.Sockets > *o.Files || o.MaxOpenFiles == nil ||
		*o.MaxOpenFiles == 0 {
		t.Errorf("got %+v", o)
	}
	if o := openFiles(0, nil); o.MaxOpenFiles != nil || *o.Files != 0 || *o.Sockets != 0 {
		t.Errorf("nothing: %+v", o)
	}
	if o := openFiles(0, make([]int, maxCountedProcesses+1)); o.Files != nil || o.Sockets != nil {
		t.Errorf("too many processes: %+v", o)
	}
	dir := t.TempDir()
	must(t, os.Symlink("socket:[1]", filepath.Join(dir, "1")))
	must(t, os.Symlink("socket:[2]", filepath.Join(dir, "2")))
	must(t, os.Symlink("pipe:[2]", filepath.Join(dir, "3")))
	if files, sockets := countFiles(dir, 10); files != 3 || sockets != 2 {
		t.Errorf("%d files, %d sockets", files, sockets)
	}
	if files, sockets := countFiles(dir, 0); files != 3 || sockets != 0 {
		t.Errorf("%d files, %d sockets without a look", files, sockets)
	}
}

// TestKnownFiles: the files of a process that has too many to look at each are counted without reading all names.
func TestKnownFiles(t *testing.T) {
	self := "/proc/self/fd"
	d, err := os.Open(self)
	must(t, err)
	defer d.Close()
	if knownFiles(d) == 0 {
		t.Skip("this kernel (before Linux 6.2) does not tell the number of open files")
	}
	for range 2 * fileBatch {
		f, err := os.Open(os.DevNull)
		must(t, err)
		defer f.Close()
	}
	if files, _ := countFiles(self, 1); files < 2*fileBatch || files > 3*fileBatch {
		t.Errorf("countFiles = %d files, want about %d", files, 2*fileBatch)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
