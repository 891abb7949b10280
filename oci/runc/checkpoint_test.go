package runc

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestCheckpointNeedsGVisor(t *testing.T) {
	r := New(Config{Name: "runc", Path: "/bin/false", Root: t.TempDir(), RunDir: t.TempDir()})
	if err := r.Checkpoint(t.Context(), "id", t.TempDir()); !errdefs.IsNotImplemented(err) {
		t.Errorf("Checkpoint = %v, want %v", err, errdefs.ErrNotImplemented)
	}
}

// TestCheckpointError: the stacks in runsc's messages are left out, and a full disk is recognized.
func TestCheckpointError(t *testing.T) {
	failed := exec.Command("/bin/false").Run()
	text := "checkpoint failed: error serializing\ngoroutine 1\nwrite: no space left on device"
	full := checkpointError([]byte(text), failed)
	if !errdefs.IsResourceExhausted(full) || strings.Contains(full.Error(), "goroutine") {
		t.Errorf("full disk: %v, want %v without a stack", full, errdefs.ErrResourceExhausted)
	}
	other := checkpointError([]byte("checkpoint failed: x\ngoroutine 1"), failed)
	if !strings.Contains(other.Error(), "checkpoint failed: x") || strings.Contains(other.Error(), "goroutine") {
		t.Errorf("error = %v, want the first line of the message", other)
	}
	if err := checkpointError(nil, errors.New("no such program")); err == nil {
		t.Error("error = nil, want the error of the start")
	}
	if err := checkpointError([]byte("a warning"), nil); err != nil {
		t.Errorf("error = %v, want nil", err)
	}
}
