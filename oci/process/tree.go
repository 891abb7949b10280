package process

import (
	"context"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pids returns the ids of all processes of the machine.
func pids() ([]int, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	var all []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			all = append(all, pid)
		}
	}
	return all, err
}

// processes reads the stat of all processes of the machine.
func processes() map[int]stat {
	list, _ := pids() // as far as they can be listed
	all := make(map[int]stat, len(list))
	for _, pid := range list {
		if s, err := readStat(pid); err == nil {
			all[pid] = s
		}
	}
	return all
}

// descendants is a growing set of processes and of the sessions that they created.
type descendants struct {
	known    map[Process]bool
	sessions map[int]bool
	// rootSession is the session that the root inherited, 0 if it leads its own. All descendants of the root are in that
	// session, or in one that was created below and has no other members.
	rootSession int
}

// newDescendants returns the set with one process.
func newDescendants(root Process) descendants {
	f := descendants{known: map[Process]bool{root: true}, sessions: map[int]bool{}}
	if s, err := readStat(root.Pid); err == nil && s.session != root.Pid {
		f.rootSession = s.session
	}
	return f
}

// grow adds every process that descends from a known one or shares its session: a daemon that forked twice has lost
// its parent but not its session, whose leader may be gone.
func (f descendants) grow(all map[int]stat) {
	for grew := true; grew; {
		grew = false
		for _, s := range all {
			if f.known[s.Process] || !f.known[all[s.parent].Process] && !f.sessions[s.session] {
				continue
			}
			f.known[s.Process] = true
			if s.session != f.rootSession && s.session > 1 {
				f.sessions[s.session] = true
			}
			grew = true
		}
	}
}

// rootGrace is how long the root of a tree may take to exit after all its descendants are dead.
const rootGrace = 500 * time.Millisecond

// KillTree kills all descendants of the process, then the process unless it exits by itself, and returns when they are
// gone or ctx ends. It repeats until no new descendant is found, because a fork may have been missed.
//
// The root is killed last because it is a runtime or a monitor, which reaps its children. Orphans would be reparented
// to the machine's init, and a dead process that init is slow to reap delays the end of its whole PID namespace.
func (p Process) KillTree(ctx context.Context) error {
	if p.Pid <= 1 {
		return nil // it is the parent of all orphans
	}
	f := newDescendants(p)
	var alone time.Time
	return Poll(ctx, func() bool {
		all := processes()
		f.grow(all)
		left := false
		for member := range f.known {
			if member != p && isRunning(all, member) {
				left = true
				_ = member.Signal(syscall.SIGKILL)
			}
		}
		switch {
		case left:
			return false
		case !isRunning(all, p):
			return true
		case alone.IsZero():
			alone = time.Now()
		case time.Since(alone) > rootGrace:
			_ = p.Signal(syscall.SIGKILL)
		}
		return false
	})
}

// isRunning reports whether the process is in the snapshot and has a thread that runs.
func isRunning(all map[int]stat, p Process) bool {
	s, there := all[p.Pid]
	return there && s.Start == p.Start && !s.exited()
}

// HalfDead returns the descendants of the process whose main thread has ended while others run, and whose name, which
// anyone can give itself, starts with the prefix. For a moment it may be one that executes a program.
func (p Process) HalfDead(prefix string) (found []Process) {
	if p.Pid <= 1 {
		return nil
	}
	f, all := newDescendants(p), processes()
	f.grow(all)
	for member := range f.known {
		s := all[member.Pid]
		if s.state == 'Z' && !s.exited() && strings.HasPrefix(s.name, prefix) {
			found = append(found, member)
		}
	}
	return found
}

// DescendsFrom reports whether the process is a descendant of another one, by birth or adoption.
func (p Process) DescendsFrom(ancestor Process) bool {
	all := processes()
	if all[p.Pid].Process != p || all[ancestor.Pid].Process != ancestor {
		return false
	}
	for range all {
		if p.Pid = all[p.Pid].parent; p.Pid <= 1 {
			return false
		}
		if p.Pid == ancestor.Pid {
			return true
		}
	}
	return false
}
