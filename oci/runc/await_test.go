package runc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/runc/conmon"
)

// TestAwaitMonitor: a monitor that has not written its pid yet is waited for, and none once no conmon is left.
func TestAwaitMonitor(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: only root's monitors count")
	}
	for name, test := range map[string]struct {
		script string // %s is the file of the pid
		found  bool
	}{
		"pid is late":  {"sleep 0.5; echo $$ >%s; read line", true},
		"conmon fails": {"sleep 0.5; exit 1 # %s", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := New(Config{Name: "runc", RunDir: t.TempDir(), Root: t.TempDir()})
			b, cmd := startAsConmon(t, r, test.script)
			m, ok, err := r.awaitMonitor(t.Context(), b)
			if err != nil || ok != test.found || ok && m.Pid != cmd.Process.Pid {
				t.Errorf("awaitMonitor = %+v, %v, %v, want %v with pid %d", m, ok, err, test.found, cmd.Process.Pid)
			}
		})
	}
	t.Run("delete", func(t *testing.T) {
		r := New(Config{Name: "runc", RunDir: t.TempDir(), Root: t.TempDir()})
		b, cmd := startAsConmon(t, r, "read line # %s")
		p, err := process.Identify(cmd.Process.Pid)
		if err := errors.Join(err, b.save(record{Restore: &restore{}})); err != nil {
			t.Fatal(err)
		}
		if err := r.Delete(t.Context(), b.ID()); p.Alive() { // there is no runtime to ask
			t.Errorf("conmon without a file of its pid is alive after Delete: %v", err)
		}
	})
}

// startAsConmon starts a shell script that looks like a monitor of a new bundle.
func startAsConmon(t *testing.T, r *Runtime, script string) (bundle, *exec.Cmd) {
	t.Helper()
	b, err := r.bundle("c")
	if err != nil {
		t.Fatal(err)
	}
	shell, err := os.ReadFile("/bin/sh")
	program := filepath.Join(t.TempDir(), "conmon")
	if err := errors.Join(err, os.MkdirAll(b.Dir(), 0o700), os.WriteFile(program, shell, 0o755)); err != nil {
		t.Fatal(err)
	}
	script = fmt.Sprintf(script, conmon.MonitorPidFile(b.Dir()))
	cmd := exec.Command(program, "-c", script, "--bundle", b.Dir())
	stdin, err := cmd.StdinPipe() // stays open, so that "read" waits
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		<-ended
	})
	return b, cmd
}
