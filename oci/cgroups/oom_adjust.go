package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// AdjustOOM sets oom_score_adj of every process of the container.
func (d Dirs) AdjustOOM(value int) error {
	dir := d.tracking()
	if dir == "" {
		return nil
	}
	return AdjustOOM(func() (pids []int, err error) {
		for _, p := range members(dir) {
			pids = append(pids, p.Pid)
		}
		return pids, nil
	}, value)
}

// AdjustOOM sets oom_score_adj of all processes, repeatedly until there is no new one: a process with the old value may
// have forked it.
func AdjustOOM(processes func() ([]int, error), value int) error {
	done := map[int]bool{}
	for before := -1; len(done) > before; {
		before = len(done)
		pids, err := processes()
		if err != nil {
			return err
		}
		for _, pid := range pids {
			if done[pid] {
				continue
			}
			if err := setOOMScoreAdj(pid, value); err != nil {
				return fmt.Errorf("set oom_score_adj of process %d to %d: %w", pid, value, err)
			}
			done[pid] = true
		}
	}
	return nil
}

// setOOMScoreAdj writes a process's oom_score_adj; a process that has ended is not an error.
func setOOMScoreAdj(pid, value int) error {
	err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), strconv.AppendInt(nil, int64(value), 10), 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}
