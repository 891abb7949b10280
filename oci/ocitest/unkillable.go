package ocitest

import (
	"os"
	"testing"
	"time"
)

// Unkillable is a shell script that freezes itself in a cgroup of its own, and then survives SIGKILL as a process does
// that is stuck in the kernel. It needs cgroup v1: version 2 lets frozen processes die.
type Unkillable struct {
	Script string
	group  string
}

// NewUnkillable makes the script's cgroup, which the test's end removes.
func NewUnkillable(t *testing.T) *Unkillable {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("cgroups need root")
	}
	group, err := os.MkdirTemp("/sys/fs/cgroup/freezer", "podd-test-")
	if err != nil {
		t.Skipf("no freezer of cgroup v1: %v", err)
	}
	u := &Unkillable{group: group}
	u.Script = "echo $$ >" + group + "/cgroup.procs; echo FROZEN >" + group + "/freezer.state; sleep 1000"
	t.Cleanup(func() {
		u.Thaw()
		for os.Remove(group) != nil {
			time.Sleep(time.Millisecond)
		}
	})
	return u
}

// WaitFrozen returns when the script is frozen, or after 20 seconds.
func (u *Unkillable) WaitFrozen(t *testing.T) {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		procs, _ := os.ReadFile(u.group + "/cgroup.procs")
		state, _ := os.ReadFile(u.group + "/freezer.state")
		if len(procs) > 0 && string(state) == "FROZEN\n" {
			return
		}
	}
	t.Error("the script is not frozen after 20s")
}

// Thaw lets the script die of a SIGKILL that it got.
func (u *Unkillable) Thaw() { _ = os.WriteFile(u.group+"/freezer.state", []byte("THAWED"), 0) }
