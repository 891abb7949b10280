package subprocess

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/thread"
)

// timerSlack is that of a process that nobody has changed, in nanoseconds.
const timerSlack = 50_000

// Neutral calls start, which starts a program, on a thread from which it inherits nothing: all CPUs, no priority, no
// blocked signals. An administrator may have limited podd itself; containers are limited by their pods.
func Neutral(start func() error) error {
	return thread.Run(func() error {
		resetThread()
		return start()
	})
}

// resetThread gives the calling thread the attributes of a new process. A node that forbids it to podd has limited
// podd for good.
func resetThread() {
	var all unix.CPUSet
	for i := range all {
		all[i] = ^all[i]
	}
	var none unix.Sigset_t
	_ = unix.SchedSetaffinity(0, &all)
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr}, 0) // SCHED_OTHER, nice 0
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &none, nil)
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0)
	const thisThread = 1 // IOPRIO_WHO_PROCESS
	_, _, _ = unix.RawSyscall(unix.SYS_IOPRIO_SET, thisThread, 0, 0)
	_, _, _ = unix.RawSyscall(unix.SYS_PERSONALITY, 0, 0, 0)
	_, _, _ = unix.RawSyscall(unix.SYS_SET_MEMPOLICY, 0, 0, 0)
}

// ResetProcess changes the attributes that all programs would inherit from podd's process as a whole: ignored signals
// are handled, and have no effect as before; huge pages are allowed, the parts of a core dump are those of process 1.
func ResetProcess() error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Errorf("read ignored signals: %w", err)
	}
	_, after, _ := strings.Cut(string(status), "\nSigIgn:")
	mask, _, _ := strings.Cut(after, "\n")
	ignored, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
	if err != nil {
		return fmt.Errorf("read ignored signals: %w", err)
	}
	for n := range 64 {
		if ignored&(1<<n) != 0 {
			signal.Notify(make(chan os.Signal, 1), syscall.Signal(n+1))
		}
	}
	_ = unix.Prctl(unix.PR_SET_THP_DISABLE, 0, 0, 0, 0)
	if filter, err := os.ReadFile("/proc/1/coredump_filter"); err == nil {
		_ = os.WriteFile("/proc/self/coredump_filter", append([]byte("0x"), filter...), 0)
	}
	return nil
}
