package driver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/ocitest"
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
		_, _, err := driver.Command{Path: "/bin/sh", Args: []string{"-c", u.Script}}.Run(ctx)
		returned <- err
	}()
	select {
	case err := <-returned:
		if !errors.Is(err, context.Canceled) || !errors.Is(err, driver.ErrUnkillable) {
			t.Errorf("Run: %v, want %v and %v", err, context.Canceled, driver.ErrUnkillable)
		}
	case <-time.After(30 * time.Second):
		t.Error("Run has not returned after 30s")
		u.Thaw()
		<-returned
	}
}
