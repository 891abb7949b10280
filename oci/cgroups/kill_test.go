package cgroups

import (
	"context"
	"fmt"
	"os"
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
