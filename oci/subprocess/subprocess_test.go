package subprocess

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func shell(script string) *exec.Cmd { return exec.Command("/bin/sh", "-c", script) }

func TestRun(t *testing.T) {
	stdout, stderr, err := Run(t.Context(), shell("echo 12345; echo why >&2; exit 3"), 4)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("Run: %v, want exit status 3", err)
	}
	if string(stdout) != "1234" || string(stderr) != "why\n" {
		t.Errorf("stdout, stderr = %q, %q, want the first 4 bytes of each", stdout, stderr)
	}
	own := NewHead(10)
	cmd := shell("echo out")
	cmd.Stdout = own
	if stdout, _, err := Run(t.Context(), cmd, 10); err != nil || len(stdout) != 0 || own.String() != "out\n" {
		t.Errorf("Run with a writer = %q, %v, which got %q, want the output in the writer only", stdout, err, own)
	}
}

func TestRunNotStarted(t *testing.T) {
	if _, _, err := Run(t.Context(), exec.Command("/no/such"), 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Run of a missing program: %v, want %v", err, os.ErrNotExist)
	}
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, _, err := Run(ctx, exec.Command("/no/such"), 0); !errors.Is(err, why) {
		t.Errorf("Run after the end of its context: %v, want %v", err, why)
	}
}

// TestRunKillsTheGroup: a program that ignores the end of its context is killed with its children.
func TestRunKillsTheGroup(t *testing.T) {
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	var group int
	started := func(pid int) error {
		group = pid
		time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
		return nil
	}
	begin := time.Now()
	_, _, err := RunWatched(ctx, shell("sleep 100 & sleep 101; echo not killed"), 100, started)
	if took := time.Since(begin); !errors.Is(err, why) || took > 10*time.Second {
		t.Errorf("Run returned %v after %v, want %v at once", err, took, why)
	}
	wantNoGroup(t, group)
}

// TestWaitGroup: what a program leaves behind in its group is killed when the program exits.
func TestWaitGroup(t *testing.T) {
	p, err := Start(shell("sleep 100 & exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := p.WaitGroup(t.Context()); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("WaitGroup: %v, want exit status 3", err)
	}
	wantNoGroup(t, p.Pid())
}

// wantNoGroup wants that a process group has no process soon.
func wantNoGroup(t *testing.T, group int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); unix.Kill(-group, 0) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the group has processes after 10s, want none")
		}
	}
}

func TestRunWatchedRefused(t *testing.T) {
	why := errors.New("why")
	begin := time.Now()
	_, _, err := RunWatched(t.Context(), shell("sleep 100"), 0, func(int) error { return why })
	if took := time.Since(begin); !errors.Is(err, why) || took > 10*time.Second {
		t.Errorf("RunWatched returned %v after %v, want %v at once", err, took, why)
	}
}

// TestRunLeavesChildBehind: a child of the program has its output open. Run does not wait for it.
func TestRunLeavesChildBehind(t *testing.T) {
	begin := time.Now()
	stdout, _, err := Run(t.Context(), shell("echo out; sleep 100 & echo $!"), 100)
	lines := strings.Fields(string(stdout))
	if took := time.Since(begin); err != nil || len(lines) != 2 || lines[0] != "out" || took > 10*time.Second {
		t.Fatalf("Run returned %q, %v after %v, want two lines", stdout, err, took)
	}
	child, err := strconv.Atoi(lines[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(child, unix.SIGKILL); err != nil {
		t.Errorf("kill of the child = %v, want it to be running", err)
	}
}

// TestStart: the program leads a group of its own, and a Kill after its end is harmless.
func TestStart(t *testing.T) {
	cmd := shell("exec sleep 100")
	p, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if group, err := unix.Getpgid(p.Pid()); err != nil || group != p.Pid() {
		t.Errorf("process group = %d, %v, want %d", group, err, p.Pid())
	}
	p.KillLeader()
	var exit *exec.ExitError
	if err := p.Wait(t.Context()); !errors.As(err, &exit) {
		t.Errorf("Wait: %v, want the signal", err)
	}
	if ws, ok := p.State().Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		t.Errorf("State = %v, want SIGKILL", p.State())
	}
	p.Kill()
}

// TestStartSession: the leader of a session leads a group, too.
func TestStartSession(t *testing.T) {
	cmd := shell("exec sleep 100")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	p, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if session, err := unix.Getsid(p.Pid()); err != nil || session != p.Pid() {
		t.Errorf("session = %d, %v, want %d", session, err, p.Pid())
	}
	p.Kill()
	_ = p.Wait(t.Context())
}
