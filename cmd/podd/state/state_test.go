package state

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/podd-project/podd/checkpoint"
)

// dirs are the paths of directories that do not exist yet.
type dirs struct{ root, run string }

func newDirs(t *testing.T) dirs {
	t.Helper()
	dir := t.TempDir()
	return dirs{filepath.Join(dir, "root"), filepath.Join(dir, "run")}
}

func TestOpenLocksBothDirectories(t *testing.T) {
	log, _ := test.NewNullLogger()
	first, other := newDirs(t), newDirs(t)
	st, err := Open(first.root, first.run, "", log)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]dirs{
		"same root": {first.root, other.run},
		"same run":  {other.root, first.run},
	} {
		_, err := Open(c.root, c.run, "", log)
		if want := fmt.Sprintf("is held by process %d (", os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Open() = %v, want an error with %q", name, err, want)
		}
	}
	// A failed attempt holds no lock: the other directories are free.
	free, err := Open(other.root, other.run, "", log)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Directories{st, free} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	again, err := Open(first.root, first.run, "", log)
	if err != nil {
		t.Fatalf("Open() after close = %v, want nil", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenRefusesANewerLayout(t *testing.T) {
	log, _ := test.NewNullLogger()
	c := newDirs(t)
	if err := os.MkdirAll(c.root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := checkpoint.CheckLayout(filepath.Join(c.root, "layout"), stateFormat+1, "podd 99.0"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first failure must release the locks
		_, err := Open(c.root, c.run, "", log)
		if err == nil || !strings.Contains(err.Error(), "podd 99.0") {
			t.Fatalf("Open() = %v, want an error with podd 99.0", err)
		}
	}
}
