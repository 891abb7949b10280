package driver

import (
	"errors"
	"slices"
	"syscall"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/process"
)

// initName is how the names of the processes begin that runc makes to become a container's first process.
const initName = "runc:["

// initPause is the time between two looks at the init. It is killed if both find it half dead.
const initPause = 200 * time.Millisecond

// WatchInit kills the init of a container that is being created below root if the container's seccomp profile has
// killed its main thread only: the runtime would wait for the others until the creation's time is over. stop ends the
// watch, and makes it the error of the creation.
func WatchInit(s *specs.Spec, root func() process.Process) (stop func(err error) error) {
	if s == nil || s.Linux == nil || !killsThreads(s.Linux.Seccomp) {
		return func(err error) error { return err }
	}
	end, killed := make(chan struct{}), make(chan bool)
	go func() { killed <- killHalfDead(root, end) }()
	return func(err error) error {
		close(end)
		if <-killed { // some runtimes report a success then
			return errors.Join(errors.New("the seccomp profile has killed the main thread of the container's init"), err)
		}
		return err
	}
}

// killsThreads reports whether the profile ends the thread that makes a forbidden system call.
func killsThreads(profile *specs.LinuxSeccomp) bool {
	kills := func(a specs.LinuxSeccompAction) bool { return a == specs.ActKill || a == specs.ActKillThread }
	return profile != nil && (kills(profile.DefaultAction) ||
		slices.ContainsFunc(profile.Syscalls, func(s specs.LinuxSyscall) bool { return kills(s.Action) }))
}

// killHalfDead looks for inits that stay half dead until end is closed, and kills them. It reports whether it did.
func killHalfDead(root func() process.Process, end <-chan struct{}) (killed bool) {
	ticker := time.NewTicker(initPause)
	defer ticker.Stop()
	var before []process.Process
	for {
		select {
		case <-end:
			return killed
		case <-ticker.C:
		}
		found := root().HalfDead(initName)
		for _, p := range found {
			if slices.Contains(before, p) {
				killed = p.Signal(syscall.SIGKILL) == nil || killed
			}
		}
		before = found
	}
}
