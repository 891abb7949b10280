package child

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

const (
	// idleCheck is how often podd checks that an idle process (Process.Idle) runs.
	idleCheck = 5 * time.Second
	// starved is how many times longer than it runs an idle process may wait for a CPU.
	starved = 10
	// raisePasses bounds how often the threads are listed, in case a hostile process starts more and more of them.
	raisePasses = 10
)

// CanBeIdle reports whether podd can raise the priority of an idle process. In a user namespace, or without
// CAP_SYS_NICE, it can only lower it; without the times that threads wait, it does not see one that starves. Then a
// process must not become idle.
var CanBeIdle = sync.OnceValue(func() bool {
	if _, err := scheduleOf("/proc/self"); err != nil {
		return false
	}
	raised := make(chan error)
	go func() {
		runtime.LockOSThread() // without an unlock: the thread ends with the goroutine
		idle, normal := &unix.SchedAttr{Policy: unix.SCHED_IDLE}, &unix.SchedAttr{Policy: unix.SCHED_NORMAL}
		raised <- errors.Join(setPolicy(0, idle), setPolicy(0, normal))
	}()
	return <-raised == nil
})

func setPolicy(tid int, attr *unix.SchedAttr) error {
	attr.Size = unix.SizeofSchedAttr
	return unix.SchedSetAttr(tid, attr, 0)
}

// keepGoing gives an idle process and its children the default priority when they starve: they hold locks of the store
// at times. The process must not be waited for before stop was called, since another could have its pid. Stop gives it
// the default priority, too, so that it ends soon.
func keepGoing(pid int, log logrus.FieldLogger) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		watchIdle(done, func() map[int]schedule { return idleThreads(pid) }, func() { raise(pid, log) })
	}()
	return func() {
		close(done)
		<-ended
	}
}

// watchIdle looks at idle threads every idleCheck until done. It calls raise when they starve, and at the end.
func watchIdle(done <-chan struct{}, look func() map[int]schedule, raise func()) {
	defer raise()
	before := look()
	for {
		select {
		case <-done:
			return
		case <-time.After(idleCheck):
		}
		now := look()
		if starves(before, now) {
			raise()
		}
		before = now
	}
}

// starves reports whether threads have waited for a CPU much longer than they have run since before.
func starves(before, now map[int]schedule) bool {
	var ran, waited time.Duration
	for tid, s := range now {
		ran += s.ran - before[tid].ran
		waited += s.waited - before[tid].waited
		if s.runnable && s == before[tid] { // the kernel counts a wait when it ends
			waited += idleCheck
		}
	}
	return waited > idleCheck/2 && waited > starved*ran
}

// raise gives all idle threads in the PID namespace of a process the default policy and niceness. A thread has the
// policy of the one that starts it, which may not have been raised yet: it looks again until all are raised.
func raise(pid int, log logrus.FieldLogger) {
	for range raisePasses {
		threads := idleThreads(pid)
		if len(threads) == 0 {
			return
		}
		for tid := range threads {
			err := setPolicy(tid, &unix.SchedAttr{Policy: unix.SCHED_NORMAL})
			if err != nil && !errors.Is(err, syscall.ESRCH) {
				log.WithError(err).WithField("pid", pid).Warn("failed to raise the priority of an idle process")
				return
			}
		}
	}
}

// schedule is how long a thread has run, and has waited for a CPU, and whether it runs or waits for one now.
type schedule struct {
	ran, waited time.Duration
	runnable    bool
}

// idleThreads returns the threads with the policy SCHED_IDLE in the PID namespace of a process.
func idleThreads(pid int) map[int]schedule {
	threads := map[int]schedule{}
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return threads // it has ended
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return threads
	}
	for _, process := range processes {
		dir := filepath.Join("/proc", process.Name())
		if to, err := os.Readlink(filepath.Join(dir, "ns/pid")); err != nil || to != namespace {
			continue // no process, one that has ended, or another's
		}
		tasks, _ := os.ReadDir(filepath.Join(dir, "task")) // it may have ended
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil {
				continue
			}
			attr, err := unix.SchedGetAttr(tid, 0)
			if err != nil || attr.Policy != unix.SCHED_IDLE {
				continue
			}
			if s, err := scheduleOf(filepath.Join(dir, "task", task.Name())); err == nil {
				threads[tid] = s
			}
		}
	}
	return threads
}

// scheduleOf reads schedstat, in nanoseconds, and the state of a thread in its directory, see proc(5).
func scheduleOf(dir string) (s schedule, err error) {
	times, err := os.ReadFile(filepath.Join(dir, "schedstat"))
	if err == nil {
		_, err = fmt.Sscan(string(times), &s.ran, &s.waited)
	}
	if err != nil {
		return s, err
	}
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	s.runnable = bytes.Contains(stat, []byte(") R "))
	return s, err
}
