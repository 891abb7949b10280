package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/moby/sys/mountinfo"
)

func TestRemoveCgroup(t *testing.T) {
	hierarchies, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil || len(hierarchies) == 0 {
		t.Fatalf("no cgroup hierarchy: %v", err)
	}
	parent := filepath.Join(hierarchies[0].Mountpoint, filepath.Base(t.TempDir())+"-podd-host-test")
	child := filepath.Join(parent, "child")
	if err := os.MkdirAll(child, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(child); os.Remove(parent) })
	path := "/" + filepath.Base(parent)
	if err := RemoveCgroup(path); err != nil {
		t.Fatalf("a cgroup that is in use: %v", err)
	}
	if _, err := os.Stat(child); err != nil {
		t.Fatalf("what is in use was removed: %v", err)
	}
	if err := os.Remove(child); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := RemoveCgroup(path); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(parent); !os.IsNotExist(err) {
			t.Fatalf("still there: %v", err)
		}
	}
}
