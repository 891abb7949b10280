package runc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/ocitest"
)

func harness(name string) ocitest.NewHarness {
	return func(t *testing.T) *ocitest.Harness { return &ocitest.Real(t, name).Harness }
}

func TestRunc(t *testing.T) { ocitest.Suite(t, harness("runc")) }
func TestCrun(t *testing.T) { ocitest.Suite(t, harness("crun")) }

func TestRunsc(t *testing.T) {
	ocitest.Suite(t, sandboxed)
}

func sandboxed(t *testing.T) *ocitest.Harness {
	m, _ := ocitest.Sandboxed(t, "runsc")
	return &m.Harness
}

func TestHalfDead(t *testing.T) {
	for _, name := range []string{"runc", "crun"} {
		t.Run(name, func(t *testing.T) { ocitest.HalfDead(t, harness(name)) })
	}
}

// TestSeccompKillsThread: crun's init has one thread, and no part of it is left.
func TestSeccompKillsThread(t *testing.T) { ocitest.KilledThread(t, harness("runc")) }

func TestSlowTerminal(t *testing.T) {
	for _, name := range []string{"runc", "crun"} {
		t.Run(name, func(t *testing.T) { ocitest.SlowTerminal(t, harness(name)) })
	}
	t.Run("runsc", func(t *testing.T) { ocitest.SlowTerminal(t, sandboxed) })
}

func TestHangUp(t *testing.T) {
	for _, name := range []string{"runc", "crun"} {
		t.Run(name, func(t *testing.T) { ocitest.HangUp(t, harness(name), "", ocitest.Stubborn) })
	}
	t.Run("runsc", func(t *testing.T) { ocitest.HangUp(t, sandboxed, "", ocitest.Stubborn) })
}

func TestReasonOOM(t *testing.T) {
	for _, name := range []string{"runc", "crun"} {
		t.Run(name, func(t *testing.T) { ocitest.OOM(t, harness(name)) })
	}
}

func TestRealTimeSignal(t *testing.T) { ocitest.RealTimeSignal(t, sandboxed) }

// TestSandboxOOM: the kernel kills the sandbox, whose cgroup counts it.
func TestSandboxOOM(t *testing.T) {
	m, _ := ocitest.Sandboxed(t, "runsc")
	limitMemory(t, m.Cgroup, 150<<20)
	r := m.New()
	start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec("dd", "if=/dev/zero", "of=/proc/self/fd/2", "bs=400M", "count=1")})
	if exit, err := r.Wait(limit(t), "c"); err != nil || exit.Code != 137 || !exit.OOM || exit.OOMKills != 1 {
		t.Errorf("exit = %+v, %v, want code 137, OOM, one kill", exit, err)
	}
}

// limitMemory sets the limit of a cgroup.
func limitMemory(t *testing.T, cgroup string, bytes int) {
	t.Helper()
	files, _ := filepath.Glob("/sys/fs/cgroup/memory" + cgroup + "/memory.limit_in_bytes")
	v2, _ := filepath.Glob("/sys/fs/cgroup" + cgroup + "/memory.max")
	for _, file := range append(files, v2...) {
		must(t, "limit", os.WriteFile(file, fmt.Append(nil, bytes), 0))
	}
}
