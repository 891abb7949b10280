package thaw

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// frozen is a file that stands for a freezer, and a program in a process group of its own.
func frozen(t *testing.T) (file string, worker *exec.Cmd) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "freezer.state")
	if err := os.WriteFile(file, []byte("FROZEN"), 0o600); err != nil {
		t.Fatal(err)
	}
	worker = exec.Command("sleep", "1000")
	worker.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = worker.Process.Kill() })
	return file, worker
}

func start(t *testing.T, limit time.Duration, file string) *Guard {
	t.Helper()
	path, err := Install(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g, err := Start(path, limit, map[string]string{file: "THAWED"})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func wantThawed(t *testing.T, file, want string) {
	t.Helper()
	if data, err := os.ReadFile(file); err != nil || string(data) != want {
		t.Errorf("file has %q, %v, want %q", data, err, want)
	}
}

// TestClose: the end of the input thaws, and kills a group that was named and not finished.
func TestClose(t *testing.T) {
	file, worker := frozen(t)
	g := start(t, time.Hour, file)
	if err := g.Watch(worker.Process.Pid); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	wantThawed(t, file, "FROZEN")
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	wantThawed(t, file, "THAWED")
	if err := worker.Wait(); err == nil || worker.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("worker: %v, want it killed", err)
	}
}

// TestPatience: a group that ends soon after the end of the input is not killed: CRIU can have its processes in a state
// in which they do not survive that.
func TestPatience(t *testing.T) {
	file, _ := frozen(t)
	done := filepath.Join(t.TempDir(), "done")
	worker := exec.Command("sh", "-c", "sleep 0.5; : >"+done)
	worker.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	g := start(t, time.Hour, file)
	if err := g.Watch(worker.Process.Pid); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- worker.Wait() }()
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	wantThawed(t, file, "THAWED")
	if err := <-ended; err != nil {
		t.Errorf("worker: %v, want it to end by itself", err)
	}
	if _, err := os.Stat(done); err != nil {
		t.Error(err)
	}
}

// TestFrozenAgain: a CRIU that is killed may just have frozen the cgroup again, so it is thawed again and again.
func TestFrozenAgain(t *testing.T) {
	_, worker := frozen(t)
	file := filepath.Join(t.TempDir(), "fifo") // keeps each write
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	fifo, err := os.OpenFile(file, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer fifo.Close()
	g := start(t, time.Hour, file)
	if err := g.Watch(worker.Process.Pid); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	const least = 2400 * time.Millisecond // for the worker to end by itself, then between the writes
	if d := time.Since(begin); d < least {
		t.Errorf("the program has ended after %v, want %v at least", d, least)
	}
	data := make([]byte, 1024)
	n, err := fifo.Read(data)
	if want := strings.Repeat("THAWED", 10); err != nil || string(data[:n]) != want {
		t.Errorf("writes = %q, %v, want %q", data[:n], err, want)
	}
	_ = worker.Wait()
}

// TestAwait: the next podd waits until the program of a killed one has done its work.
func TestAwait(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("podd looks for processes of root only")
	}
	file, worker := frozen(t)
	g := start(t, time.Hour, file)
	if err := g.Watch(worker.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := g.stdin.Close(); err != nil { // as the death of podd does
		t.Fatal(err)
	}
	if err := Await(t.Context(), map[string]string{file + "2": "THAWED"}); err != nil {
		t.Error(err)
	}
	wantThawed(t, file, "FROZEN") // another container is not waited for
	if err := Await(t.Context(), map[string]string{file: "THAWED"}); err != nil {
		t.Error(err)
	}
	wantThawed(t, file, "THAWED")
	select {
	case <-g.Done:
	case <-time.After(10 * time.Second):
		t.Error("the program has not ended")
	}
	_ = worker.Wait()
}

// TestFinished: a group that was finished is not killed.
func TestFinished(t *testing.T) {
	file, worker := frozen(t)
	g := start(t, time.Hour, file)
	for _, group := range []int{worker.Process.Pid, 0} {
		if err := g.Watch(group); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	wantThawed(t, file, "THAWED")
	if pid, err := syscall.Wait4(worker.Process.Pid, nil, syscall.WNOHANG, nil); pid != 0 || err != nil {
		t.Errorf("worker has ended (%d, %v), want it to run", pid, err)
	}
}

// TestDeadline: the program thaws by itself, and reports that.
func TestDeadline(t *testing.T) {
	file, _ := frozen(t)
	g := start(t, 0, file)
	select {
	case <-g.Done:
	case <-time.After(10 * time.Second):
		t.Error("still waits 10 s later, want it to have thawed after 1 s")
	}
	wantThawed(t, file, "THAWED")
	if err := g.Watch(1234); err == nil {
		t.Error("Watch after the deadline = nil, want an error")
	}
	_ = g.Close()
}
