package ocitest

import (
	"syscall"
	"testing"

	"github.com/podd-project/podd/oci"
)

// realTimeSignal is systemd's SIGRTMIN+3.
const realTimeSignal = syscall.Signal(37)

// RealTimeSignal wants a container to get SIGTERM instead of a signal that its kernel or runtime does not know.
func RealTimeSignal(t *testing.T, newHarness NewHarness) {
	h := newHarness(t)
	r := h.New()
	run(t, h, r, "c", Trap(7)...)
	p := process(h, "sh", "-c", "sleep 1")
	_, err := r.ExecSync(limit(t), oci.ExecRequest{ID: "c", Process: p}) // by then the trap is set
	must(t, "exec", err)
	must(t, "signal", r.Signal(limit(t), "c", realTimeSignal))
	if exit, err := r.Wait(limit(t), "c"); err != nil || exit.Code != 7 {
		t.Errorf("exit = %+v, %v, want code 7, of the trap for SIGTERM", exit, err)
	}
}
