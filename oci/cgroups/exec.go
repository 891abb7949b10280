package cgroups

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/podd-project/podd/oci/process"
)

// ExecGroup is the cgroup of one command, below the container's. Every process that the command starts is in it,
// however often it forked, and all can be killed together. The container's limits hold in it, because no controller is
// enabled for it; a program in it that looks up its own limits has to read those of the parents, as below systemd.
//
// On cgroup v1 it is a cgroup of the freezer hierarchy alone. All methods may be called on nil, which stands for no
// group.
type ExecGroup struct {
	// Name is the group's path below the container's cgroup. Controller is its hierarchy, "" for cgroup v2.
	Name, Controller string
	// own is the group, parent the container's directory in the same hierarchy.
	own    Dirs
	parent string
}

// removeTime is how long the kernel may take to notice that a group is empty.
const removeTime = time.Second

// NewExecGroup creates the group of that name in the container's cgroup; nil if that is not possible.
func (d Dirs) NewExecGroup(name string) *ExecGroup {
	g := d.ExecGroup(name)
	if g == nil {
		return nil
	}
	dir := g.own[g.Controller]
	if os.Mkdir(dir, 0o755) != nil {
		return nil
	}
	if !joinable(dir) {
		_ = os.Remove(dir)
		return nil
	}
	return g
}

// ExecGroup returns the group that NewExecGroup created under that name; nil if the container's cgroup is not known.
func (d Dirs) ExecGroup(name string) *ExecGroup {
	controller := unified
	if _, v1 := d["freezer"]; v1 {
		controller = "freezer"
	}
	parent := d[controller]
	if parent == "" {
		return nil
	}
	return &ExecGroup{Name: name, Controller: controller, own: Dirs{controller: filepath.Join(parent, name)},
		parent: parent}
}

// joinable reports whether processes can be moved into the group. On cgroup v2 they cannot once its parent is threaded.
func joinable(dir string) bool {
	kind, err := os.ReadFile(filepath.Join(dir, "cgroup.type"))
	return err != nil || strings.TrimSpace(string(kind)) == "domain"
}

// Kill kills all processes in the group and returns when none is left or ctx ends.
func (g *ExecGroup) Kill(ctx context.Context) {
	if g != nil {
		_ = g.own.Kill(ctx)
	}
}

// Remove removes the group. Processes that the command has left running move to the container's group. A group that
// cannot be emptied is removed with the container.
func (g *ExecGroup) Remove() {
	if g == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeTime)
	defer cancel()
	_ = process.Poll(ctx, func() bool {
		for _, dir := range g.own {
			g.release(dir)
			if err := os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
				return true
			}
		}
		return false
	})
}

// release moves every process in the group to the container's.
func (g *ExecGroup) release(dir string) {
	procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for pid := range strings.FieldsSeq(string(procs)) {
		// The kernel refuses if the container created cgroups, and for processes that are gone.
		_ = os.WriteFile(filepath.Join(g.parent, "cgroup.procs"), []byte(pid), 0)
	}
}
