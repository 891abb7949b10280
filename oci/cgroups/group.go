package cgroups

import (
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

// Group is one cgroup. It is safe for concurrent use and must be closed.
type Group struct {
	tree *Tree
	path string
	// places are the group's directories by controller, with the names of v1.
	places map[string]place
	// unified is the group in the v2 hierarchy, zero if it is not there.
	unified place
	// files are what Read reads.
	files []reading

	mu     sync.Mutex
	users  int // reads in progress
	closed bool
}

// reading is an open file and its parser.
type reading struct {
	file  *file
	parse func(text []byte, u *Usage)
}

// Path is the group's path in the hierarchy, as in /proc/<pid>/cgroup.
func (g *Group) Path() string { return g.path }

// open opens the files for Read. Files that do not exist are never looked for again: controllers are enabled before a
// container is moved into its group.
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

// fileParser is a file's name and the parser of its text.
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

// Read returns the current usage. Errors: errdefs.ErrNotFound if the group is gone or closed.
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
	u.finish()
	return u, nil
}

// finish computes the values that are derived from others.
func (u *Usage) finish() {
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

// Close closes the group's files after the last read in progress. It does not wait.
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

// cpu, memory, swap and pids return the part of the usage that a file belongs to, created at first use.
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
