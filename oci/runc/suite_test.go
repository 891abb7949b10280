package runc_test

import (
	"testing"

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
