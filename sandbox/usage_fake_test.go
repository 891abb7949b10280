package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/sandbox/usage"
)

// fakeCgroups is a machine's control groups, by path. Containers are in /podd/podd-<id>.
type fakeCgroups struct {
	mu     sync.Mutex
	groups map[string]*fakeGroup
	// open counts the groups that were opened and not closed.
	open int
	// opened counts all that ever were.
	opened int
}

// fakeGroup is one control group. Its processes use one core all the time.
type fakeGroup struct {
	path     string
	children []string
	procs    []int
	limits   cgroups.Limits
	// unified are files, detailsErr is what reading details ends with.
	unified    map[string]string
	detailsErr error
	updates    []*specs.LinuxResources
	// gone makes every call fail, block makes them wait first.
	gone  bool
	err   error
	block chan struct{}
	reads int
	born  time.Time
}

func newFakeCgroups() *fakeCgroups { return &fakeCgroups{groups: map[string]*fakeGroup{}} }

func (f *fakeCgroups) add(path string) *fakeGroup {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := &fakeGroup{path: path, born: time.Now()}
	f.groups[path] = g
	return g
}

func (f *fakeCgroups) Of(pid int, name string) (usage.Cgroup, error) {
	if pid == 0 {
		return nil, fmt.Errorf("process 0: %w", errdefs.ErrNotFound)
	}
	return f.At("/podd/podd-" + name)
}

func (f *fakeCgroups) At(path string) (usage.Cgroup, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.groups[path]
	if g == nil {
		return nil, fmt.Errorf("cgroup %s: %w", path, errdefs.ErrNotFound)
	}
	f.open, f.opened = f.open+1, f.opened+1
	return &openGroup{fakeGroup: g, all: f}, nil
}

func (f *fakeCgroups) Device(major, minor uint64) string { return fmt.Sprintf("disk%d", major) }

func (f *fakeCgroups) openGroups() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

func (f *fakeCgroups) reads(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.groups[path].reads
}

// openGroup is one hold on a group.
type openGroup struct {
	*fakeGroup
	all    *fakeCgroups
	closed bool
}

func (g *openGroup) call() error {
	g.all.mu.Lock()
	block := g.block
	g.all.mu.Unlock()
	if block != nil {
		<-block
	}
	g.all.mu.Lock()
	defer g.all.mu.Unlock()
	g.reads++
	switch {
	case g.closed:
		panic("used after it was closed")
	case g.gone:
		return fmt.Errorf("cgroup %s: %w", g.path, errdefs.ErrNotFound)
	}
	return g.err
}

func (g *openGroup) Path() string { return g.path }

func (g *openGroup) Read() (cgroups.Usage, error) {
	if err := g.call(); err != nil {
		return cgroups.Usage{}, err
	}
	now := time.Now()
	return cgroups.Usage{
		At: now, CPU: &cgroups.CPU{Total: now.Sub(g.born)},
		Memory: &cgroups.Memory{Usage: 100, WorkingSet: 80, RSS: 60, Limit: 1000, PageFaults: 5},
		Swap:   &cgroups.Swap{Usage: 7, Limit: 9}, Pids: &cgroups.Pids{Current: 2, Limit: 50},
		CPUPressure: &cgroups.Pressure{Some: cgroups.Stall{Avg10: 1}},
	}, nil
}

func (g *openGroup) Details() (cgroups.Details, error) {
	return cgroups.Details{At: time.Now(), Limits: g.limits, Processes: g.procs}, errors.Join(g.detailsErr, g.call())
}

func (g *openGroup) Unified(name string) (string, error) { return g.unified[name], g.call() }

func (g *openGroup) Limits() (cgroups.Limits, error) { return g.limits, g.call() }

func (g *openGroup) Processes() ([]int, error) { return g.procs, g.call() }

func (g *openGroup) Update(r *specs.LinuxResources) error {
	g.updates = append(g.updates, r)
	return g.call()
}

func (g *openGroup) Only(own func(string) bool) (bool, error) {
	return !slices.ContainsFunc(g.children, func(c string) bool { return !own(c) }), g.call()
}

func (g *openGroup) Close() {
	g.all.mu.Lock()
	defer g.all.mu.Unlock()
	if g.closed {
		panic("closed twice")
	}
	g.closed = true
	g.all.open--
}

type fakeDisk struct{}

func (fakeDisk) Writable(id string) (image.FsUsage, bool) {
	return image.FsUsage{Mountpoint: "/disk", Bytes: 4096, Inodes: 2, At: time.Now()}, id != ""
}

func (fakeDisk) Filesystem() image.Filesystem { return image.Filesystem{Major: 8, Bytes: 1 << 30} }

// measuring is an engine on a fake machine whose containers can be measured.
func measuring(t *testing.T) (*Engine, *fakeCgroups) {
	t.Helper()
	e, _ := newEngine(t, newMachine(t))
	groups := newFakeCgroups()
	e.deps.Cgroups, e.deps.Disk = groups, fakeDisk{}
	e.usage = newCollector(*e.cfg.Load(), e.deps)
	return e, groups
}

// running is a container that runs, with a control group.
func running(t *testing.T, e *Engine, f *fakeCgroups, pod, name string) (string, *fakeGroup) {
	t.Helper()
	id := mustCreate(t, e, pod, name)
	mustStart(t, e, id)
	return id, f.add("/podd/podd-" + id)
}

func groupOf(id string) string { return path.Join("/podd", "podd-"+id) }

func asJSON(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}
