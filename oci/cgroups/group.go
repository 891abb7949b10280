package cgroups

import (
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

// Group is one control group. It may be used by many goroutines; Close it when it is not needed any more.
type Group struct {
	tree *Tree
	path string
	// places has the controllers that the group has, by their names in v1.
	places map[string]place
	// unified is the group in the v2 hierarchy, zero when it has none.
	unified place
	// files are what Read reads.
	files []reading

	mu     sync.Mutex
	users  int // readings under way
	closed bool
}

// reading is a file that stays open, and what it says.
type reading struct {
	file  *file
	parse func(text []byte, u *Usage)
}

// Path is the group's path in the hierarchy, as in /proc/<pid>/cgroup.
func (g *Group) Path() string { return g.path }

// open opens what Read reads. A file that is not there is left out for good: controllers are enabled before a
// container is put into its group.
func (g *Group) open() {
	for _, p := range []struct {
		place
		files []fileParser
	}{
		{g.unified, pressureFiles()},
		{g.places["cpu"], choose(g.places["cpu"].v2, cpuFilesV2(), cpuFilesV1())},
		{g.places["cpuacct"], choose(g.places["cpuacct"].v2, nil, cpuacctFilesV1())},
		{g.places["memory"], choose(g.places["memory"].v2, memoryFilesV2(), memoryFilesV1())},
		{g.places["pids"], pidsFiles()},
	} {
		for _, f := range p.files {
			if p.dir == "" {
				break
			}
			if opened := g.tree.openFile(p.dir + "/" + f.name); opened != nil {
				g.files = append(g.files, reading{opened, f.parse})
			}
		}
	}
}

// fileParser is a file's name and its meaning.
type fileParser struct {
	name  string
	parse func(text []byte, u *Usage)
}

func choose[T any](second bool, v2, v1 T) T {
	if second {
		return v2
	}
	return v1
}

// Read returns what the group uses now. It waits for nothing but the kernel. Errors: errdefs.ErrNotFound when the
// group is gone, or was closed.
func (g *Group) Read() (Usage, error) {
	if err := g.begin(); err != nil {
		return Usage{}, err
	}
	defer g.end()
	u := Usage{At: time.Now()}
	for _, r := range g.files {
		if err := g.tree.read(r.file, func(text []byte) { r.parse(text, &u) }); err != nil {
			return Usage{}, err
		}
	}
	u.settle()
	return u, nil
}

// settle computes what follows from other figures.
func (u *Usage) settle() {
	m := u.Memory
	if m == nil {
		return
	}
	m.WorkingSet = m.Usage - min(m.Usage, m.InactiveFile)
	if u.Swap == nil {
		return
	}
	if m.hasSwap { // v1: the limit is on the sum of both
		u.Swap.Usage = m.swap
		if u.Swap.Limit != Unlimited {
			u.Swap.Limit -= min(u.Swap.Limit, m.Limit)
		}
	}
}

func (g *Group) begin() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return fmt.Errorf("cgroup %s is closed: %w", g.path, errdefs.ErrNotFound)
	}
	g.users++
	return nil
}

func (g *Group) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.users--
	g.release()
}

// Close lets the group's files go, once the last reading has ended. It does not wait.
func (g *Group) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.release()
}

// release needs g.mu.
func (g *Group) release() {
	if !g.closed || g.users > 0 {
		return
	}
	for _, r := range g.files {
		g.tree.closeFile(r.file)
	}
	g.files = nil
}

// cpu and its siblings make the part that a file fills in.
func (u *Usage) cpu() *CPU {
	if u.CPU == nil {
		u.CPU = &CPU{}
	}
	return u.CPU
}

func (u *Usage) memory() *Memory {
	if u.Memory == nil {
		u.Memory = &Memory{Limit: Unlimited}
	}
	return u.Memory
}

func (u *Usage) swap() *Swap {
	if u.Swap == nil {
		u.Swap = &Swap{}
	}
	return u.Swap
}

func (u *Usage) pids() *Pids {
	if u.Pids == nil {
		u.Pids = &Pids{}
	}
	return u.Pids
}
