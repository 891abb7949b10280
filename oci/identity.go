package oci

import (
	"context"
	"syscall"
)

// What other kinds of handlers (oci/shim) share with this one.

// CheckID refuses ids that are not safe as a file name or an argument: errdefs.ErrInvalidArgument.
func CheckID(id string) error { return checkID(id) }

// Identify returns the process that has the pid now.
func Identify(pid int) (Process, error) { return identify(pid) }

// Alive tells whether this very process still runs; a zombie does not.
func (p Process) Alive() bool { return p.alive() }

// Signal sends to the process; one that is gone is no error.
func (p Process) Signal(sig syscall.Signal) error { return p.signal(sig) }

// Wait returns when the process has ended, at once when it is gone already.
func (p Process) Wait(ctx context.Context) error { return p.wait(ctx) }

// Kill kills the process and waits until it is gone.
func (p Process) Kill(ctx context.Context) error { return kill(ctx, p) }

// KillTree kills all descendants of the process and the process, and returns when they are gone or ctx ends.
func (p Process) KillTree(ctx context.Context) error { return killTree(ctx, p) }

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

// BootID is the kernel's random id of this boot, "" when it cannot be read.
func BootID() string { return bootID() }

// KernelRecursiveReadOnly tells whether the kernel can make mounts read-only with all below them.
func KernelRecursiveReadOnly() bool { return kernelRecursiveReadOnly() }
