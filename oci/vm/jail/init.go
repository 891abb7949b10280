package jail

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// initName is the name by which this program knows that it is process 1 of a jail.
const initName = "podd-vm-jail"

// MaybeInit makes this program process 1 of a jail, if the jail has started it as that, and does not return then; main
// calls it first. It mounts /proc, which only a process in the PID namespace can do, keeps its capabilities, so that no
// program in the jail may trace it, and waits until it is killed, with which the kernel kills the others.
func MaybeInit() {
	if os.Args[0] != initName || len(os.Args) != 2 {
		return
	}
	signal.Ignore(unix.SIGCHLD) // orphans of the guest are not kept
	if err := mountProc(os.Args[1]); err != nil {
		fmt.Print(err)
		os.Exit(1)
	}
	_ = os.Stdout.Close()
	for {
		_ = unix.Pause()
	}
}

// startInit starts process 1 of the namespace in which the calling thread starts programs: this program, which is to
// mount /proc at a path. It ends with the thread, and ended is closed then; nil if it was not started.
func startInit(proc string) (ended chan struct{}, err error) {
	if err := os.Mkdir(proc, 0o555); err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", proc)
	cmd.Args[0], cmd.Stdout, cmd.Dir = initName, w, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	err = errors.Join(cmd.Start(), w.Close())
	if err != nil {
		return nil, fmt.Errorf("start process 1: %w", err)
	}
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it was killed
	}()
	if said, err := io.ReadAll(io.LimitReader(r, unix.PathMax)); err != nil || len(said) > 0 {
		return ended, errors.Join(fmt.Errorf("process 1: %s", said), err)
	}
	return ended, nil
}

// nobodysGroup has no member. The group 0, which is the default, would see all processes.
const nobodysGroup = 1<<32 - 2

// mountProc mounts a /proc with the processes of the jail, of which a program sees those that it could trace (hidepid
// in proc(5)). It shows processors and the like, too, which User-Mode Linux reads.
func mountProc(target string) error {
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	return unix.Mount("proc", target, "proc", flags, fmt.Sprintf("hidepid=invisible,gid=%d", uint32(nobodysGroup)))
}
