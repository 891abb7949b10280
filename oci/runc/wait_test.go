package runc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/process"
)

// TestDeleteSettlesWaiters removes the bundle under a waiter, as Delete does, before the waiter can read the
// exit file: the status was left to it.
func TestDeleteSettlesWaiters(t *testing.T) {
	r := New(Config{Name: "h", RunDir: t.TempDir(), Root: t.TempDir()})
	b, err := r.bundle("c")
	if err != nil {
		t.Fatal(err)
	}
	p, err := process.Identify(sleeper(t, "sleep 1000", false).Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Create(&specs.Spec{}); err != nil {
		t.Fatal(err)
	}
	if err := b.save(record{Init: p}); err != nil {
		t.Fatal(err)
	}
	want := oci.Exit{Code: 7, At: time.Unix(1, 0), Known: true, OOM: true}
	got, before := make(chan oci.Exit, 1), pidfds(p.Pid)
	go func() {
		e, err := r.Wait(t.Context(), "c")
		if err != nil {
			t.Errorf("wait: %v", err)
		}
		got <- e
	}()
	for pidfds(p.Pid) == before { // until the waiter has read the record and waits for the process
		time.Sleep(time.Millisecond)
	}
	r.waiters.Deliver("c", want)
	r.waiters.Deliver("c", oci.Exit{Code: 8, Known: true}) // only the first counts
	r.waiters.Deliver("unknown", want)
	if err := os.RemoveAll(b.Dir()); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(9); err != nil {
		t.Fatal(err)
	}
	if e := <-got; e != want {
		t.Errorf("exit %+v, want %+v", e, want)
	}
}

// pidfds counts what this process has open to wait for that one.
func pidfds(pid int) (n int) {
	open, _ := filepath.Glob("/proc/self/fdinfo/*")
	for _, fd := range open {
		if info, err := os.ReadFile(fd); err == nil && strings.Contains(string(info), fmt.Sprintf("\nPid:\t%d\n", pid)) {
			n++
		}
	}
	return n
}

// sleeper starts a process that the test's end kills.
func sleeper(t *testing.T, script string, session bool) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/busybox", "sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: session, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}
