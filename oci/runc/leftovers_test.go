package runc_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/oci/runc"
)

func TestMonitorWithoutItsBundleIsFoundAndReaped(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r, ok := m.New().(*runc.Runtime)
		if !ok {
			t.Fatalf("New returned a %T, want a *runc.Runtime", m.New())
		}
		lost := start(t, r, oci.CreateRequest{ID: "lost", Spec: m.Spec("sleep", "1000")})
		start(t, r, oci.CreateRequest{ID: "other", Spec: m.Spec("sleep", "1000")})
		must(t, "remove bundle", os.RemoveAll(filepath.Join(m.Config.RunDir, "lost")))
		ids, err := r.List(limit(t))
		must(t, "find", err)
		if !slices.Equal(ids, []string{"lost", "other"}) {
			t.Errorf("List = %q, want lost and other", ids)
		}
		must(t, "reap", r.Destroy(limit(t), "lost"))
		if err := syscall.Kill(lost.Pid, 0); err == nil {
			t.Errorf("process %d still runs after Destroy", lost.Pid)
		}
		ids, err = r.List(limit(t))
		must(t, "find", err)
		if !slices.Equal(ids, []string{"other"}) {
			t.Errorf("List after Destroy = %q, want other", ids)
		}
		if s, err := r.State(limit(t), "other"); err != nil || s.Status != oci.Running {
			t.Errorf("state of other = %+v, %v, want %s", s, err, oci.Running)
		}
	})
}

// TestForgedMonitors: a process with the command line of a monitor is none unless it is conmon, run by root in podd's
// namespaces. 300 forgeries do not slow the search down.
func TestForgedMonitors(t *testing.T) {
	m := ocitest.Real(t, "runc")
	r, ok := m.New().(*runc.Runtime)
	if !ok {
		t.Fatalf("New returned a %T, want a *runc.Runtime", m.New())
	}
	shell, err := os.ReadFile("/bin/sh")
	must(t, "read the shell", err)
	copied := filepath.Join(t.TempDir(), "conmon") // a program of that name, which does nothing
	must(t, "copy", os.WriteFile(copied, shell, 0o755))
	forge := func(program, id string, attr *syscall.SysProcAttr) {
		t.Helper()
		cmd := exec.Command(program, "-c", "read line", "--bundle", filepath.Join(m.Config.RunDir, id))
		cmd.SysProcAttr = attr
		_, err := cmd.StdinPipe() // stays open, so that the shell waits
		must(t, "start", errors.Join(err, cmd.Start()))
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	for i := range 300 {
		forge("/bin/sh", fmt.Sprintf("nobody%d", i), nobody)
	}
	forge("/bin/sh", "another-program", nil)
	forge(copied, "another-mount-namespace", &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS})
	forge(copied, "another-pid-namespace", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID})
	forge(copied, "real", nil)
	began := time.Now()
	ids, err := r.List(limit(t))
	must(t, "find", err)
	if !slices.Equal(ids, []string{"real"}) {
		t.Errorf("List = %q, want only the one that podd could have started", ids)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("List took %v, want at most 1s", took)
	}
}
