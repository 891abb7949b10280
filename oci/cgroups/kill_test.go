package cgroups

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/podd-project/podd/oci/process"
)

// TestDestroy kills a process in cgroups of every hierarchy, and removes them.
func TestDestroy(t *testing.T) {
	tree, err := Find()
	must(t, err)
	name := fmt.Sprintf("poddtest-kill-%d", os.Getpid())
	p, err := process.Identify(realGroup(t, tree, name))
	must(t, err)
	dirs := DirsAt(name)
	remembered.Store(&hierarchies{"memory": {dir: t.TempDir(), root: "/"}}) // it is wrong, and must be read again
	if own := DirsOf(p.Pid); len(dirs) == 0 || fmt.Sprint(own) != fmt.Sprint(dirs) {
		t.Errorf("DirsOf = %v, want those of DirsAt, %v", own, dirs)
	}
	g := dirs.NewExecGroup("podd-exec-1")
	if g == nil {
		t.Fatalf("NewExecGroup in %v = nil", dirs)
	}
	g.Remove()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	must(t, dirs.Destroy(ctx))
	if p.Alive() {
		t.Error("the process is alive after Destroy")
	}
	if left := DirsAt(name); len(left) > 0 {
		t.Errorf("left after Destroy: %v", left)
	}
	must(t, dirs.Destroy(ctx)) // again
}

// TestDestroyPartlyEntered destroys cgroups that a process has entered in one hierarchy of v1 only, as the runtime of
// an interrupted creation has.
func TestDestroyPartlyEntered(t *testing.T) {
	tree, err := Find()
	must(t, err)
	dir := tree.mounts["cpuset"].dir
	if dir == "" {
		t.Skip("cpuset has no hierarchy of cgroup v1: a process is in all cgroups at once")
	}
	name := fmt.Sprintf("poddtest-partly-%d", os.Getpid())
	p, err := process.Identify(realGroup(t, tree, name))
	must(t, err)
	for _, own := range DirsAt(name) {
		if parent := filepath.Dir(own); parent != dir {
			must(t, os.WriteFile(filepath.Join(parent, "cgroup.procs"), fmt.Append(nil, p.Pid), 0o644))
		}
	}
	must(t, DirsAt(name).Destroy(t.Context()))
	if left := DirsAt(name); p.Alive() || len(left) > 0 {
		t.Errorf("alive: %v, left after Destroy: %v; want the process dead and nothing left", p.Alive(), left)
	}
}
