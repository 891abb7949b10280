package ocitest

import (
	"os"
	"testing"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// UpdateRefused tests updates that the kernel refuses: the error says whose mistake it is.
func UpdateRefused(t *testing.T, newHarness NewHarness) {
	h := newHarness(t)
	r := h.New()
	run(t, h, r, "c", "sleep", "1000")
	err := r.Update(limit(t), "c", &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "1000"}})
	if !errdefs.IsInvalidArgument(err) {
		t.Errorf("Update to a CPU that does not exist = %v, want an invalid argument", err)
	}
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err != nil {
		return // cgroup v2 kills processes that use more than a new limit
	}
	err = r.Update(limit(t), "c", &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(4096))}})
	if !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Update to less memory than is used = %v, want a failed precondition", err)
	}
}
