package guest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containerd/cgroups/v3/cgroup2"
	task "github.com/containerd/containerd/api/runtime/task/v3"
)

// groups knows the cgroup of each container, as a directory below root.
type groups struct {
	root string
	mu   sync.Mutex
	dirs map[string]string
}

func newGroups(root string) *groups { return &groups{root: root, dirs: map[string]string{}} }

// note notes the cgroup of a container's first process, which exists.
func (g *groups) note(id string, pid int) {
	path, err := cgroup2.PidGroupPath(pid)
	if err != nil {
		fmt.Fprintf(os.Stderr, "podd-vm-agent: cgroup of container %s: %v\n", id, err)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dirs[id] = filepath.Join(g.root, path)
}

func (g *groups) forget(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.dirs, id)
}

// oomKilled reports whether the kernel has killed a process of a container for lack of memory.
func (g *groups) oomKilled(id string) bool {
	g.mu.Lock()
	dir, exists := g.dirs[id]
	g.mu.Unlock()
	if !exists {
		return false
	}
	f, err := os.Open(filepath.Join(dir, "memory.events"))
	if err != nil {
		return false // the container has just been deleted
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if count, found := strings.CutPrefix(lines.Text(), "oom_kill "); found {
			return count != "0"
		}
	}
	return false
}

// Create creates a container and notes its cgroup. Its shares are mounted before.
func (s taskService) Create(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	s.shares.begin(r.GetID(), r.GetBundle())
	out, err := s.TTRPCTaskService.Create(ctx, r)
	if err != nil {
		s.shares.end(r.GetID())
		return nil, err
	}
	s.groups.note(r.GetID(), int(out.GetPid()))
	return out, nil
}

// Wait returns when a container or a command has ended. If a process of the container was killed for lack of memory, it
// tells the host first: containerd's task service may answer before it publishes the event, and publishes none for a
// process that is killed before the container counts as started.
func (s taskService) Wait(ctx context.Context, r *task.WaitRequest) (*task.WaitResponse, error) {
	out, err := s.TTRPCTaskService.Wait(ctx, r)
	if err == nil && r.GetExecID() == "" && s.groups.oomKilled(r.GetID()) {
		s.tellOOM(r.GetID())
	}
	return out, err
}

// Delete deletes a container or a command that has ended.
func (s taskService) Delete(ctx context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	out, err := s.TTRPCTaskService.Delete(ctx, r)
	if err == nil && r.GetExecID() == "" {
		s.groups.forget(r.GetID())
		s.shares.end(r.GetID())
		s.forget()
	}
	return out, err
}
