package process

import (
	"context"
	"os"
	"strconv"
	"syscall"
	"time"
)

// processes reads the stat of every process of the machine.
func processes() map[int]stat {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	all := make(map[int]stat, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if s, err := readStat(pid); err == nil {
			all[pid] = s
		}
	}
	return all
}

// family is a growing set of processes and of the sessions that they made.
type family struct {
	known    map[Process]bool
	sessions map[int]bool
	// foreign is the session that the root was born into, 0 if it leads its own. Everything below the root is
	// in that one, or in a session that was made below and holds nobody else.
	foreign int
}

// newFamily begins with one process.
func newFamily(root Process) family {
	f := family{known: map[Process]bool{root: true}, sessions: map[int]bool{}}
	if s, err := readStat(root.Pid); err == nil && s.session != root.Pid {
		f.foreign = s.session
	}
	return f
}

// grow adds every process of all that descends from a known one or shares its session: a daemon that forked
// twice has lost its parent but not its session, which may have lost its leader.
func (f family) grow(all map[int]stat) {
	for grew := true; grew; {
		grew = false
		for _, s := range all {
			if f.known[s.Process] || !f.known[all[s.parent].Process] && !f.sessions[s.session] {
				continue
			}
			f.known[s.Process] = true
			if s.session != f.foreign && s.session > 1 {
				f.sessions[s.session] = true
			}
			grew = true
		}
	}
}

// rootGrace is how long the root of a tree may take to end by itself once everything below it is dead.
const rootGrace = 500 * time.Millisecond

// KillTree kills all descendants of the process, and the process too unless it then ends by itself, and
// returns when they are gone or ctx ends. It looks again until nothing new is found, because a fork may have
// been missed.
//
// The root dies last because it is a runtime or a monitor, which reaps its children. Orphans would go to the
// machine's init, and a dead process that init is slow to reap holds up the end of its whole PID namespace.
func (p Process) KillTree(ctx context.Context) error {
	if p.Pid <= 1 {
		return nil // nobody's: it would be the parent of all that have none
	}
	f := newFamily(p)
	var alone time.Time
	return Poll(ctx, func() bool {
		all := processes()
		f.grow(all)
		left := false
		for member := range f.known {
			if member != p && living(all, member) {
				left = true
				_ = member.Signal(syscall.SIGKILL)
			}
		}
		switch {
		case left:
			return false
		case !living(all, p):
			return true
		case alone.IsZero():
			alone = time.Now()
		case time.Since(alone) > rootGrace:
			_ = p.Signal(syscall.SIGKILL)
		}
		return false
	})
}

// living tells whether the process is in the snapshot, and no zombie.
func living(all map[int]stat, p Process) bool {
	s, there := all[p.Pid]
	return there && s.Start == p.Start && s.state != 'Z' && s.state != 'X'
}

// DescendsFrom tells whether the process was born below another one, or adopted by it.
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
