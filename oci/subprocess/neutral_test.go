package subprocess

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/thread"
)

// TestNeutral starts itself with what an administrator may give to podd. A program that it starts gets none of it.
func TestNeutral(t *testing.T) {
	const role = "PODD_TEST_NEUTRAL"
	switch os.Getenv(role) {
	case "podd":
		if err := ResetProcess(); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestNeutral$")
		cmd.Env = append(os.Environ(), role+"=container")
		cmd.Stdout = os.Stdout
		if err := Neutral(cmd.Run); err != nil {
			t.Fatal(err)
		}
		return
	case "container":
		if ttou := signal.Ignored(syscall.SIGTTOU); ttou {
			t.Error("SIGTTOU is ignored")
		}
		fmt.Println("inherited: " + inherited() + ".")
		return
	}
	want := ""
	err := thread.Run(func() error {
		resetThread()
		want = inherited()
		return nil
	})
	if err != nil || !strings.Contains(want, "nice 20, ") || !strings.Contains(want, "SigBlk:\t0000000000000000") {
		t.Fatalf("a neutral thread has %s, %v", want, err)
	}
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	cmd := exec.Command(os.Args[0], "-test.run=^TestNeutral$")
	cmd.Env = append(os.Environ(), role+"=podd")
	var out []byte
	err = thread.Run(func() (err error) {
		var one unix.CPUSet
		one.Set(firstCPU(t))
		blocked := unix.Sigset_t{}
		blocked.Val[0] = 1 << (unix.SIGUSR1 - 1)
		const idle = 3 << 13
		for what, err := range map[string]error{
			"affinity": unix.SchedSetaffinity(0, &one), "nice": unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 7),
			"signals": unix.PthreadSigmask(unix.SIG_BLOCK, &blocked, nil),
			"slack":   unix.Prctl(unix.PR_SET_TIMERSLACK, 123456, 0, 0, 0),
			"ioprio":  call(unix.SYS_IOPRIO_SET, 1, 0, idle), "personality": call(unix.SYS_PERSONALITY, 0x40000, 0, 0),
		} {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if odd := inherited(); odd == want {
			t.Errorf("a changed thread has %s, too", odd)
		}
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil || !strings.Contains(string(out), "inherited: "+want+".\n") {
		t.Errorf("a container of a changed podd: %v, %s, want %s", err, out, want)
	}
}

// inherited describes the calling thread.
func inherited() string {
	var cpus unix.CPUSet
	affinity := unix.SchedGetaffinity(0, &cpus)
	nice, _ := unix.Getpriority(unix.PRIO_PROCESS, unix.Gettid()) // the system call's: 20 - nice
	slack, _ := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	ioprio, _, _ := unix.RawSyscall(unix.SYS_IOPRIO_GET, 1, 0, 0)
	persona, _, _ := unix.RawSyscall(unix.SYS_PERSONALITY, 0xffffffff, 0, 0)
	status, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", unix.Gettid()))
	_, after, _ := strings.Cut(string(status), "SigBlk:")
	blocked, _, _ := strings.Cut(after, "\n")
	return fmt.Sprintf("%d CPUs (%v), nice %d, slack %d, ioprio %d, personality %d, SigBlk:%s",
		cpus.Count(), affinity, nice, slack, ioprio, persona, blocked)
}

func firstCPU(t *testing.T) int {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		t.Fatal(err)
	}
	for i := range 1024 {
		if cpus.IsSet(i) {
			return i
		}
	}
	return 0
}

func call(number, a, b, c uintptr) error {
	if _, _, errno := unix.RawSyscall(number, a, b, c); errno != 0 {
		return errno
	}
	return nil
}
