package oci

import (
	"context"
	"os"
	"strconv"
	"syscall"
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

// family adds to known every process of all that descends from a known one, or is in a session that a known
// one leads: a daemon that forked twice has lost its parent, but not its session.
func family(all map[int]stat, known map[Process]bool) {
	for grew := true; grew; {
		grew = false
		for _, s := range all {
			if known[s.Process] {
				continue
			}
			if known[all[s.parent].Process] || known[all[s.session].Process] {
				known[s.Process] = true
				grew = true
			}
		}
	}
}

// killTree kills the process and all its descendants, and returns when they are gone or ctx ends. It looks
// again until nothing new is found, because a fork may have been missed.
func killTree(ctx context.Context, root Process) error {
	known := map[Process]bool{root: true}
	return poll(ctx, func() bool {
		all := processes()
		family(all, known)
		left := false
		for p := range known {
			s, there := all[p.Pid]
			if !there || s.Start != p.Start || s.state == 'Z' || s.state == 'X' {
				continue
			}
			left = true
			_ = p.signal(syscall.SIGKILL)
		}
		return !left
	})
}
