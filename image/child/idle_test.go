package child

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"go.podman.io/storage/pkg/reexec"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image/confine"
)

// Commands of this test program. confineProbe becomes sleepProbe, idle if its first argument is true. That waits for
// the end of its input, and computes until then if it has an argument.
const (
	confineProbe = "podd-test-confine"
	sleepProbe   = "podd-test-sleep"
)

func init() {
	reexec.Register(confineProbe, func() {
		policy := confine.Policy{
			Idle: os.Args[1] == "true", Read: []string{"/proc"},
			Execute: []string{"/lib", "/lib64", "/usr/lib", "/usr/lib64"}, // with the race detector it is not static
		}
		Fail(policy.Exec(append([]string{sleepProbe}, os.Args[2:]...), os.Environ()))
	})
	reexec.Register(sleepProbe, func() {
		if len(os.Args) > 1 {
			go func() {
				for i := 1; i > 0; i++ { // for 2^63 rounds
				}
			}()
		}
		_, _ = io.Copy(io.Discard, os.Stdin)
	})
}

// startSleeper starts a process, idle or not, until the end of the test.
func startSleeper(t *testing.T, idle bool, args ...string) (pid int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{confineProbe, strconv.FormatBool(idle)}, args...)
	cmd.SysProcAttr = confine.Attributes()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // the process dies with this thread
	if err := onOneProcessor(cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// On a busy machine an idle process would take long to end.
		raise(cmd.Process.Pid, logrus.StandardLogger())
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	})
	confined := func() bool { // by the name that it has after it has restricted itself
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid))
		return strings.HasPrefix(string(name), sleepProbe)
	}
	for deadline := time.Now().Add(3 * time.Minute); !confined(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the process has not restricted itself within 3 minutes")
		}
	}
	return cmd.Process.Pid
}

// onOneProcessor starts a process that uses only one processor, always the same.
func onOneProcessor(start func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	for n := range len(all) * 64 {
		if all.IsSet(n) {
			one.Set(n)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil { // the process inherits it
		return err
	}
	return errors.Join(start(), unix.SchedSetaffinity(0, &all))
}

// startBusy starts a process that computes until the end of the test.
func startBusy(t *testing.T) {
	t.Helper()
	busy := exec.Command("/bin/sh", "-c", "while :; do :; done")
	if err := onOneProcessor(busy.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = busy.Process.Kill()
		_ = busy.Wait() // killed
	})
}

// policies returns the scheduling policies of the threads of a process.
func policies(t *testing.T, pid int) map[uint32]bool {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	policies := map[uint32]bool{}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			t.Fatal(err)
		}
		attr, err := unix.SchedGetAttr(tid, 0)
		if err != nil {
			continue // it has ended
		}
		policies[attr.Policy] = true
	}
	return policies
}

// TestIdle: every thread of an idle job's process runs only when nothing else does; another job has podd's priority.
func TestIdle(t *testing.T) {
	for name, c := range map[string]struct {
		idle bool
		want uint32
	}{"idle": {true, unix.SCHED_IDLE}, "other": {false, unix.SCHED_NORMAL}} {
		t.Run(name, func(t *testing.T) {
			pid := startSleeper(t, c.idle)
			if got := policies(t, pid); len(got) != 1 || !got[c.want] {
				t.Errorf("policies of the threads = %v, want only %d", got, c.want)
			}
		})
	}
}

// TestIdleIsRaised: all threads of an idle process that starves get the default priority.
func TestIdleIsRaised(t *testing.T) {
	pid := startSleeper(t, true, "spin")
	startBusy(t)
	startBusy(t)
	stop := keepGoing(pid, logrus.StandardLogger())
	defer stop()
	raised := func() bool { got := policies(t, pid); return len(got) == 1 && got[unix.SCHED_NORMAL] }
	for deadline := time.Now().Add(time.Minute); !raised(); {
		if time.Now().After(deadline) {
			t.Fatalf("policies after a minute = %v, want only %d", policies(t, pid), unix.SCHED_NORMAL)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestWatchIdle: threads that sleep stay idle until they start to starve, and those of a process that ends do not.
func TestWatchIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		var thread atomic.Pointer[schedule]
		var raised atomic.Int32
		thread.Store(&schedule{})
		look := func() map[int]schedule { return map[int]schedule{1: *thread.Load()} }
		go watchIdle(done, look, func() { raised.Add(1) })
		time.Sleep(idleCheck / 2) // between two looks
		for _, c := range []struct {
			now  schedule
			want int32
		}{
			{schedule{0, 0, false}, 0},
			{schedule{0, idleCheck, false}, 1},
			{schedule{0, idleCheck, false}, 1},
			{schedule{0, idleCheck, true}, 1},
			{schedule{0, idleCheck, true}, 2},
		} {
			thread.Store(&c.now)
			time.Sleep(idleCheck)
			if got := raised.Load(); got != c.want {
				t.Errorf("raised %d times after %v, want %d", got, c.now, c.want)
			}
		}
		close(done)
		synctest.Wait()
		if got := raised.Load(); got != 3 {
			t.Errorf("raised %d times when the process has been told to end, want 3", got)
		}
	})
}

// TestStarves: what counts is how long threads waited since the last look, and how long they ran.
func TestStarves(t *testing.T) {
	type threads = map[int]schedule
	const look = idleCheck
	for name, c := range map[string]struct {
		before, now threads
		want        bool
	}{
		"sleeps":    {threads{1: {look, 9 * look, false}}, threads{1: {look, 9 * look, false}}, false},
		"runs":      {threads{1: {0, 9 * look, true}}, threads{1: {look / 3, 9*look + look/3*2, true}}, false},
		"waits":     {threads{1: {9 * look, 0, true}}, threads{1: {9*look + look/99, look, true}}, true},
		"never ran": {threads{1: {1, 1, true}}, threads{1: {1, 1, true}}, true},
		"new":       {threads{}, threads{1: {0, look, true}}, true},
		"one runs":  {threads{1: {1, 1, true}, 2: {1, 1, true}}, threads{1: {1, 1, true}, 2: {look, 1, true}}, false},
		"ended":     {threads{1: {0, 9 * look, true}}, threads{}, false},
	} {
		if got := starves(c.before, c.now); got != c.want {
			t.Errorf("%s: starves = %t, want %t", name, got, c.want)
		}
	}
}
