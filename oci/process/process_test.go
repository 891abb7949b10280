package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const rest = " S 1 2 3 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 3"
	for name, tt := range map[string]struct {
		text string
		want stat
		ok   bool
	}{
		"plain": {
			"42 (sleep)" + rest,
			stat{
				Process: Process{42, 987654}, parent: 1, group: 2, session: 3, flags: 4194560, threads: 1,
				state: 'S', name: "sleep",
			}, true,
		},
		"parentheses": {
			"42 (a) R 9 (b)" + rest,
			stat{
				Process: Process{42, 987654}, parent: 1, group: 2, session: 3, flags: 4194560, threads: 1,
				state: 'S', name: "a) R 9 (b",
			}, true,
		},
		"newline": {
			"42 (a\nb)" + rest,
			stat{
				Process: Process{42, 987654}, parent: 1, group: 2, session: 3, flags: 4194560, threads: 1,
				state: 'S', name: "a\nb",
			}, true,
		},
		"empty":       {"", stat{}, false},
		"no end":      {"42 (sleep S 1", stat{}, false},
		"reversed":    {")(", stat{}, false},
		"short":       {"42 (sleep) S 1 2", stat{}, false},
		"not numbers": {"42 (sleep)" + strings.ReplaceAll(rest, "1", "x"), stat{}, false},
	} {
		got, err := parseStat(42, []byte(tt.text))
		if (err == nil) != tt.ok || tt.ok && got != tt.want {
			t.Errorf("%s: parseStat = %+v, %v, want %+v, valid: %v", name, got, err, tt.want, tt.ok)
		}
	}
}

// TestExited: the state is that of the main thread.
func TestExited(t *testing.T) {
	for text, want := range map[string]bool{"S 1": false, "Z 1": true, "Z 0": true, "Z 2": false, "X 2": true} {
		s := stat{}
		if _, err := fmt.Sscanf(text, "%c %d", &s.state, &s.threads); err != nil {
			t.Fatal(err)
		}
		if got := s.exited(); got != want {
			t.Errorf("exited in state and with threads %s = %v, want %v", text, got, want)
		}
	}
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

// TestReusedPid: a process with another start time is another process.
func TestReusedPid(t *testing.T) {
	cmd := sleeper(t, "sleep 1000", false)
	p, err := Identify(cmd.Process.Pid)
	if err != nil || !p.Alive() {
		t.Fatalf("Identify = %+v, %v, want a live process", p, err)
	}
	reused := Process{p.Pid, p.Start + 1}
	if reused.Alive() {
		t.Error("Alive with another start time = true, want false")
	}
	if err := reused.Signal(syscall.SIGKILL); err != nil {
		t.Errorf("Signal = %v, want nil", err)
	}
	if err := reused.Wait(context.Background()); err != nil {
		t.Errorf("Wait = %v, want nil", err)
	}
	time.Sleep(20 * time.Millisecond)
	if !p.Alive() {
		t.Error("a signal to another start time killed the process, want no effect")
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Errorf("Signal = %v, want nil", err)
	}
	if err := p.Wait(context.Background()); err != nil {
		t.Errorf("Wait = %v, want nil", err)
	}
	if p.Alive() { // a zombie now: its parent has not waited
		t.Error("Alive after SIGKILL = true, want false")
	}
}

func TestWaitHonoursContext(t *testing.T) {
	p, err := Identify(sleeper(t, "sleep 1000", false).Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(boom)
	if err := p.Wait(ctx); !errors.Is(err, boom) {
		t.Errorf("Wait with an ended context = %v, want %v", err, boom)
	}
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer stop()
	if err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait = %v, want %v", err, context.DeadlineExceeded)
	}
}

func TestNoProcess(t *testing.T) {
	var none Process
	if none.Alive() {
		t.Error("Alive of the zero Process = true, want false")
	}
	if err := none.Signal(syscall.SIGKILL); err != nil {
		t.Errorf("Signal = %v, want nil", err)
	}
	if err := none.KillTree(context.Background()); err != nil { // kills everything, if it is wrong
		t.Errorf("KillTree = %v, want nil", err)
	}
	if err := (Process{Pid: 1, Start: 1}).KillTree(context.Background()); err != nil {
		t.Errorf("KillTree = %v, want nil", err)
	}
}

// TestSessionWithoutLeader: a process has exited, and its pid is still the id of its session. For such a pid,
// pidfd_open fails with different errors on different kernels.
func TestSessionWithoutLeader(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	// The shell is the leader and waits to be killed; the sleep stays in its session.
	cmd := exec.Command("sh", "-c", "sleep 1000 & echo $!; wait")
	cmd.Stdout, cmd.SysProcAttr = in, &syscall.SysProcAttr{Setsid: true}
	if err := errors.Join(cmd.Start(), in.Close()); err != nil {
		t.Fatal(err)
	}
	leader, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Fscan(out, &child); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(child, syscall.SIGKILL) }()
	if err := leader.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	wantGone(t, leader)
}

// TestThreadIsNoProcess: pidfd_open refuses the id of a thread, as older kernels do the pid of a session without its
// leader, by EINVAL.
func TestThreadIsNoProcess(t *testing.T) {
	runtime.LockOSThread() // ends with the goroutine, and with it the thread
	defer runtime.UnlockOSThread()
	ids := make(chan int)
	release := make(chan struct{})
	defer close(release)
	go func() {
		runtime.LockOSThread()
		ids <- syscall.Gettid()
		<-release
	}()
	tid := <-ids
	if tid == os.Getpid() {
		tid = syscall.Gettid()
	}
	wantGone(t, Process{Pid: tid, Start: 1})
}

func wantGone(t *testing.T, p Process) {
	t.Helper()
	if _, err := p.open(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("open: %v, want %v", err, os.ErrProcessDone)
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Errorf("Signal = %v, want nil", err)
	}
	if err := p.Wait(t.Context()); err != nil {
		t.Errorf("Wait = %v, want nil", err)
	}
}

func TestFamily(t *testing.T) {
	all := map[int]stat{}
	add := func(pid, parent, session int) {
		all[pid] = stat{Process: Process{pid, uint64(pid)}, parent: parent, session: session, state: 'S'}
	}
	add(1, 0, 1)
	add(10, 1, 10)   // the root
	add(11, 10, 10)  // child
	add(12, 11, 12)  // grandchild in a session of its own
	add(13, 1, 12)   // orphan of that session
	add(14, 13, 14)  // child of the orphan
	add(15, 1, 99)   // orphan of a session whose leader is gone
	add(16, 10, 99)  // by which it is known
	add(17, 1, 10)   // orphan of the root's session
	add(20, 1, 20)   // unrelated
	add(21, 20, 21)  // its child
	add(22, 500, 22) // child of an unknown process

	root := all[10].Process
	leader := descendants{known: map[Process]bool{root: true}, sessions: map[int]bool{}}
	leader.grow(all)
	for pid, want := range map[int]bool{
		1: false, 10: true, 11: true, 12: true, 13: true, 14: true, 15: true, 16: true, 17: true,
		20: false, 21: false, 22: false,
	} {
		if got := leader.known[all[pid].Process]; got != want {
			t.Errorf("process %d: %v, want %v", pid, got, want)
		}
	}
	// The same tree, had the root been born into session 10: its mates there are strangers.
	member := descendants{known: map[Process]bool{root: true}, sessions: map[int]bool{}, rootSession: 10}
	member.grow(all)
	for pid, want := range map[int]bool{11: true, 12: true, 13: true, 15: true, 16: true, 17: false, 20: false} {
		if got := member.known[all[pid].Process]; got != want {
			t.Errorf("in a foreign session: process %d: %v, want %v", pid, got, want)
		}
	}
}

func TestKillTree(t *testing.T) {
	cmd := sleeper(t, "trap '' TERM; (sleep 1000 &); sleep 1001 & "+
		"setsid sh -c '(sleep 1002 &); sleep 1003; :' & sleep 1004; :", true)
	root, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	f := newDescendants(root)
	for len(f.known) < 7 { // the shells, setsid and the sleeps
		time.Sleep(time.Millisecond)
		f.grow(processes())
	}
	if err := root.KillTree(context.Background()); err != nil {
		t.Fatal(err)
	}
	for p := range f.known {
		if p.Alive() {
			t.Errorf("process %d still runs after KillTree", p.Pid)
		}
	}
	if !alive(os.Getpid()) {
		t.Error("Alive of the test's own process = false, want true")
	}
}

// TestHangUp: a terminal's user has left something that ignores SIGHUP, and something in another group. The command
// itself ends, even if it ignores SIGHUP.
func TestHangUp(t *testing.T) {
	for name, trap := range map[string]string{"obedient": "", "stubborn": "trap '' HUP; "} {
		t.Run(name, func(t *testing.T) {
			out, in, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			script := "sleep 1000 & echo $!; (trap '' HUP; exec sleep 1001) & echo $!; setsid sleep 1002 & echo $!; " +
				trap + "while :; do sleep 0.01; done"
			cmd := exec.Command("/bin/busybox", "sh", "-c", script)
			cmd.Stdout, cmd.SysProcAttr = in, &syscall.SysProcAttr{Setsid: true}
			if err := errors.Join(cmd.Start(), in.Close()); err != nil {
				t.Fatal(err)
			}
			p, err := Identify(cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			children := [3]int{}
			if _, err := fmt.Fscan(out, &children[0], &children[1], &children[2]); err != nil {
				t.Fatal(err)
			}
			err = Poll(t.Context(), func() bool { // until they are what they become
				first, _ := readStat(children[0])
				second, _ := readStat(children[1])
				third, _ := readStat(children[2])
				return first.name == "sleep" && second.name == "sleep" && third.session == children[2]
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.HangUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			for i, want := range []bool{false, true, true} {
				err := Poll(t.Context(), func() bool { return want || !alive(children[i]) })
				if got := alive(children[i]); got != want {
					t.Errorf("process %d of 3 is alive: %v, %v, want %v", i+1, got, err, want)
				}
				_ = syscall.Kill(children[i], syscall.SIGKILL)
			}
		})
	}
}

func alive(pid int) bool {
	p, err := Identify(pid)
	return err == nil && p.Alive()
}
