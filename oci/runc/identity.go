package runc

import "context"

// Failure makes the error of a runtime that failed at act with this complaint: an ErrCommand when it is about the
// container's command, an errdefs kind where callers act upon it.
func Failure(act, text string) error { return failure(act, complaint([]byte(text))) }

// KillCgroup kills every process in the control groups of a cgroupsPath of the cgroupfs driver, and removes the
// groups. Absent ones are no error.
func KillCgroup(ctx context.Context, path string) error {
	groups := cgroupsAt(path)
	if err := groups.kill(ctx); err != nil {
		return err
	}
	return groups.remove()
}

// CgroupOOMKilled tells whether the kernel killed a process in the control groups of the path for memory.
func CgroupOOMKilled(path string) bool {
	kills, _ := cgroupsAt(path).oomKills()
	return kills > 0
}
