package network

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDelLockOutlivesTheDaemon: processes started by a plugin of an earlier daemon hold the lock, and the next daemon
// waits.
func TestDelLockOutlivesTheDaemon(t *testing.T) {
	c := cniWith(t.TempDir())
	f, err := c.lockDel(t.Context(), "pod")
	if err != nil {
		t.Fatal(err)
	}
	plugin := exec.Command("sleep", "1000")
	plugin.ExtraFiles = []*os.File{f}
	if err := plugin.Start(); err != nil {
		t.Fatal(err)
	}
	f.Close() // the daemon dies

	ctx, cancel := context.WithTimeout(t.Context(), 3*delLockPoll)
	defer cancel()
	if _, err := c.lockDel(ctx, "pod"); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), c.delLockPath("pod")) {
		t.Errorf("lockDel while the plugin runs = %v, want a deadline exceeded error with the path", err)
	}
	other, err := c.lockDel(t.Context(), "other")
	if err != nil {
		t.Fatalf("lockDel of another pod = %v, want no error", err)
	}
	other.Close()
	if err := plugin.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = plugin.Wait()
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	f, err = c.lockDel(ctx, "pod")
	if err != nil {
		t.Fatalf("lockDel after the plugin has ended = %v, want no error", err)
	}
	f.Close()
}

func TestExecPluginInheritsTheDelLock(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "plugin")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nreadlink /proc/$$/fd/3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(dir, "hold"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	with := &executor{execOptions: execOptions{delLock: lock}, env: []string{"PATH=/bin:/usr/bin"}}
	if out, err := with.ExecPlugin(t.Context(), script, nil, nil); err != nil ||
		strings.TrimSpace(string(out)) != lock.Name() {
		t.Errorf("the plugin's file 3 = %q, %v, want %s", out, err, lock.Name())
	}
	without := &executor{env: []string{"PATH=/bin:/usr/bin"}}
	if out, err := without.ExecPlugin(t.Context(), script, nil, nil); err == nil {
		t.Errorf("the plugin's file 3 without a lock = %q, want an error", out)
	}
}

func TestTeardownRemovesTheDelLock(t *testing.T) {
	c := cniWith(t.TempDir())
	for _, path := range []string{c.delLockPath("pod"), c.recordPath("pod")} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if ids, err := c.Attachments(); err != nil || len(ids) != 1 {
		t.Errorf("Attachments = %v, %v, want one, without the lock", ids, err)
	}
	if err := c.removeRecord("pod"); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(c.stateDir); len(left) > 0 {
		t.Errorf("files left over: %v", left)
	}
}
