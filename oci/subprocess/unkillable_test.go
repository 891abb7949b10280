package subprocess_test

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/oci/subprocess"
)

// TestRunUnkillable: the caller does not wait for a program that survives SIGKILL.
func TestRunUnkillable(t *testing.T) {
	u := ocitest.NewUnkillable(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		u.WaitFrozen(t)
	}()
	returned := make(chan error, 1)
	go func() {
		_, _, err := subprocess.Run(ctx, exec.Command("/bin/sh", "-c", u.Script), 0)
		returned <- err
	}()
	select {
	case err := <-returned:
		if !errors.Is(err, context.Canceled) || !errors.Is(err, subprocess.ErrUnkillable) {
			t.Errorf("Run: %v, want %v and %v", err, context.Canceled, subprocess.ErrUnkillable)
		}
	case <-time.After(30 * time.Second):
		t.Error("Run has not returned after 30s")
		u.Thaw()
		<-returned
	}
}
