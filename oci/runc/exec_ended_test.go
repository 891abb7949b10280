package runc

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/process"
)

// TestExecRacesWithEnd: a runtime misses the namespaces of a container that is about to exit, before it has.
func TestExecRacesWithEnd(t *testing.T) {
	for seconds, want := range map[string]bool{"0.05": true, "1000": false} {
		cmd := exec.Command("sleep", seconds)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		init, err := process.Identify(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		c := launchedCommand{init: init}
		if err := c.ended(errors.New("no such namespace")); errdefs.IsFailedPrecondition(err) != want {
			t.Errorf("first process of %s s: error = %v, want a failed precondition: %v", seconds, err, want)
		}
	}
}
