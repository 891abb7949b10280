package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/checkpoint/fsynctest"
)

// synced are the functions that change the record p1/old.json of a directory of records, with the fsyncs that they
// must make: of what, and which files exist then. Whether an fsync comes before or after a rename is in the names.
var synced = map[string]struct {
	do    func(root string) error
	syncs []string // patterns of path.Match
}{
	"Create": {
		func(root string) error { return Create(root, "p2", fill) },
		nil,
	},
	"Commit": {
		func(root string) error { return Commit(filepath.Join(root, "p1/old.json"), "final.json") },
		[]string{"p1/old.json: p1/old.json", "p1: p1/final.json", ".: p1/final.json"},
	},
	"Write": {
		func(root string) error { return Write(filepath.Join(root, "p1/old.json"), 1, pod{Name: "new"}) },
		[]string{"p1/.tmp-old.json-*: p1/.tmp-old.json-* p1/old.json", "p1: p1/old.json"},
	},
	"Sync": {
		func(root string) error { return Sync(filepath.Join(root, "p1/old.json")) },
		[]string{"p1/old.json: p1/old.json", "p1: p1/old.json"},
	},
	"WriteUnsynced": {
		func(root string) error { return WriteUnsynced(filepath.Join(root, "p1/old.json"), 1, pod{Name: "new"}) },
		nil,
	},
	"Remove": {
		func(root string) error { return Remove(root, "p1") },
		[]string{".: .del-p1/old.json"},
	},
	"Quarantine": {
		func(root string) error {
			_, err := Quarantine(filepath.Join(root, "p1"), filepath.Join(root, "bad"))
			return err
		},
		[]string{"bad: bad/p1-*/old.json", ".: bad/p1-*/old.json"},
	},
}

func fill(dir string) error { return WriteNew(filepath.Join(dir, "old.json"), 1, pod{Name: "old"}) }

// newRecord returns a directory of records with p1/old.json.
func newRecord(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := Create(root, "p1", fill); err != nil {
		t.Fatal(err)
	}
	return root
}

// TestFsyncs: what the functions sync, and in which order with renames.
func TestFsyncs(t *testing.T) {
	for name, c := range synced {
		t.Run(name, func(t *testing.T) {
			root := newRecord(t)
			var got []string
			err := fsynctest.Watch(t, func() error { return c.do(root) }, func(file string) syscall.Errno {
				got = append(got, fmt.Sprintf("%s: %s", within(root, file), strings.Join(filesIn(t, root), " ")))
				return 0
			})
			if err != nil {
				t.Errorf("%s = %v, want nil", name, err)
			}
			if !slices.EqualFunc(c.syncs, got, func(want, got string) bool {
				ok, err := path.Match(want, got)
				return ok && err == nil
			}) {
				t.Errorf("fsyncs, with the files that existed:\n%q, want\n%q", got, c.syncs)
			}
		})
	}
}

// TestFailedFsync: the function fails, whichever of its fsyncs does. A file whose fsync fails does not get its name.
func TestFailedFsync(t *testing.T) {
	for name, c := range synced {
		for i, sync := range c.syncs {
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				root, n := newRecord(t), -1
				err := fsynctest.Watch(t, func() error { return c.do(root) }, func(string) syscall.Errno {
					if n++; n == i {
						return unix.EIO
					}
					return 0
				})
				if !errors.Is(err, unix.EIO) {
					t.Errorf("%s = %v, want %v", name, err, unix.EIO)
				}
				what, _, _ := strings.Cut(sync, ":")
				if !strings.Contains(what, ".json") { // a directory
					return
				}
				var got pod
				if err := Read(filepath.Join(root, "p1/old.json"), 1, &got); err != nil || got.Name != "old" {
					t.Errorf("record after the failure = %+v, %v, want the name %q", got, err, "old")
				}
				assertOnly(t, filepath.Join(root, "p1"), "old.json")
			})
		}
	}
}

func within(root, file string) string {
	if rel, err := filepath.Rel(root, file); err == nil {
		return rel
	}
	return file
}

// filesIn returns the paths of the files in root, sorted.
func filesIn(t *testing.T, root string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, within(root, file))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return files
}
