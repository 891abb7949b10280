package runc

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/podd-project/podd/oci/process"
)

// execGroup is a cgroup of one command, below the container's: whatever the command starts is in it, however
// often it forked, and can be killed as a whole. The container's limits hold in it, for no controller is enabled
// for it; a program in it that looks for its own limits must look further up, as systemd's services must.
//
// On cgroup v1 it is a cgroup of the freezer hierarchy alone.
type execGroup struct {
	// own is the group, home the container's directory in the same hierarchy.
	own  cgroups
	home string
	// opt is how the runtime's exec verb is told.
	opt string
}

// disbandTime is how long the kernel may take to notice that nobody is left in a group.
const disbandTime = time.Second

// newExecGroup makes a group for the command whose process description is in that file. It returns nil when there
// can be none: the command is then known by its parents and sessions only (see killTree).
func (r *Runtime) newExecGroup(rec record, processFile string) *execGroup {
	version := r.answers().features.Version
	runc := atLeast(version, "runc version ", "1.1")
	if !runc && !atLeast(version, "crun version ", "1.8") {
		return nil
	}
	hierarchy, prefix := unified, ""
	if _, v1 := rec.Cgroups["freezer"]; v1 {
		// crun can be told one path for all hierarchies only; a group in each would have limits of its own.
		hierarchy, prefix = "freezer", "freezer:"
		if !runc {
			return nil
		}
	}
	home := rec.Cgroups[hierarchy]
	name := "podd-" + strings.TrimSuffix(filepath.Base(processFile), ".json")
	dir := filepath.Join(home, name)
	if home == "" || os.Mkdir(dir, 0o755) != nil {
		return nil
	}
	g := &execGroup{own: cgroups{hierarchy: dir}, home: home, opt: "--cgroup=" + prefix + name}
	if !joinable(dir) {
		_ = os.Remove(dir)
		return nil
	}
	return g
}

// joinable is false for a group of cgroup v2 whose parent has become threaded.
func joinable(dir string) bool {
	kind, err := os.ReadFile(filepath.Join(dir, "cgroup.type"))
	return err != nil || strings.TrimSpace(string(kind)) == "domain"
}

// opts are what the runtime's exec verb is told of the group.
func (g *execGroup) opts() []string {
	if g == nil {
		return nil
	}
	return []string{g.opt}
}

// kill kills all that is in the group, and returns when nothing is or ctx ends.
func (g *execGroup) kill(ctx context.Context) {
	if g != nil {
		_ = g.own.kill(ctx)
	}
}

// disband removes the group. What the command has left behind lives on in the container's group, where it
// would be without this one. A group that cannot be emptied goes with the container.
func (g *execGroup) disband() {
	if g == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), disbandTime)
	defer cancel()
	_ = process.Poll(ctx, func() bool {
		for _, dir := range g.own {
			g.release(dir)
			if err := os.Remove(dir); err == nil || os.IsNotExist(err) {
				return true
			}
		}
		return false
	})
}

// release moves everybody in the group to the container's.
func (g *execGroup) release(dir string) {
	procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for pid := range strings.FieldsSeq(string(procs)) {
		// The kernel refuses where the container has groups of its own, and for processes that are gone.
		_ = os.WriteFile(filepath.Join(g.home, "cgroup.procs"), []byte(pid), 0)
	}
}
