// Package jail is the view of the host that a pod's virtual machine monitor has: the pod's network namespace, and a
// mount namespace whose root has only the monitor's programs and the directory that the guest gets. It has
// no path to the host's other files. The kernel removes the mounts with the last process in it, so that nothing is left
// when the shim and the monitor are killed.
package jail

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Paths in the jail.
const (
	// Shared has the guest's files: a directory for each container.
	Shared = "/shared"
	// Memory is a tmpfs for the guest's memory, Temp for sockets and the like.
	Memory = "/dev/shm"
	Temp   = "/tmp"
	// Work is the working directory of the programs, by which the caller of a shim finds them: the pod's bundle.
	Work = "/bundle"
)

// Config describes a jail.
type Config struct {
	// Netns is the path of the pod's network namespace.
	Netns string
	// Bundle is mounted at Work. Files are paths on the host by paths in the jail. All are read-only.
	Bundle string
	Files  map[string]string
	// Capabilities are kept by the programs, and no others.
	Capabilities []uintptr
	// Memory is the size of the tmpfs for the guest's memory, in MiB.
	Memory int
	// User owns Memory and Temp.
	User uint32
}

// Jail is a thread that lives in the namespaces. It must be closed.
type Jail struct {
	work  chan func()
	close sync.Once
	// ended is closed after the end of process 1, with which all others end; nil if there is none.
	ended chan struct{}

	// The rest is used only on the thread. sharesDir has the shares, by their names, of which there were named.
	containers map[string]*container
	shares     map[shareKey]*share
	sharesDir  int
	named      int
}

// New makes a jail.
func New(c Config) (*Jail, error) {
	if os.Args[0] == initName {
		return nil, errors.New("the program does not call jail.MaybeInit")
	}
	trees, err := openTrees(c)
	if err != nil {
		return nil, err
	}
	defer trees.close()
	// The first use of a process has the library start one, which must not be process 1 of the jail.
	_, _ = os.FindProcess(os.Getpid())
	j := &Jail{
		work:       make(chan func()),
		containers: map[string]*container{}, shares: map[shareKey]*share{},
	}
	ready := make(chan error)
	go onOwnThread(func() {
		err := j.enter(c, trees)
		if err == nil {
			err = j.makeShares()
		}
		ready <- err
		if err != nil {
			return
		}
		for f := range j.work {
			f()
		}
		j.forget()
	})
	if err := <-ready; err != nil {
		j.Close()
		return nil, err
	}
	return j, nil
}

// makeShares makes the directory of the shares.
func (j *Jail) makeShares() (err error) {
	dir := path.Join(Shared, sharesName)
	if err := unix.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("directory of the shares: %w", err)
	}
	j.sharesDir, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return err
}

// forget closes every descriptor.
func (j *Jail) forget() {
	for _, c := range j.containers {
		_ = c.dir.Close()
	}
	for _, s := range j.shares {
		_ = unix.Close(s.tree)
	}
	_ = unix.Close(j.sharesDir)
}

// onOwnThread runs f on a thread that ends with it. It is never the main thread, which does not end, and whose
// namespaces /proc/self shows.
func onOwnThread(f func()) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	if unix.Gettid() != os.Getpid() {
		f()
		return
	}
	started := make(chan struct{})
	go onOwnThread(func() { close(started); f() }) // not on the main thread, which is locked here
	<-started
	runtime.UnlockOSThread()
}

// Do runs f on the thread, where paths and network are those of the jail.
func (j *Jail) Do(f func() error) error {
	done := make(chan error, 1)
	j.work <- func() { done <- f() }
	return <-done
}

// Start starts a program in the jail. It ends at the latest with the jail. It must have no Pdeathsig, with which a
// program of another PID namespace than its parent's kills itself.
func (j *Jail) Start(cmd *exec.Cmd) error { return j.Do(cmd.Start) }

// closeGrace is how long Close waits for programs that cannot be killed.
const closeGrace = 5 * time.Second

// Close ends the thread and all programs, and waits until they have been reaped, for which the callers of Start must
// wait for theirs. The mounts vanish with the last one. It can be called again.
func (j *Jail) Close() {
	j.close.Do(func() { close(j.work) })
	if j.ended == nil {
		return
	}
	select {
	case <-j.ended:
	case <-time.After(closeGrace):
	}
}

// enter takes the calling thread into new namespaces.
func (j *Jail) enter(c Config, t trees) error {
	netns, err := os.Open(c.Netns)
	if err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	defer netns.Close()
	if err := unix.Setns(int(netns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", c.Netns, err)
	}
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS | unix.CLONE_NEWPID); err != nil {
		return fmt.Errorf("new namespaces: %w", err)
	}
	if j.ended, err = buildRoot(c, t); err != nil {
		return fmt.Errorf("root directory of the virtual machine monitor: %w", err)
	}
	// Programs inherit it: one without privileges could not enter it.
	if err := unix.Chdir(Work); err != nil {
		return err
	}
	return errors.Join(forbidHandles(), limitCapabilities(c.Capabilities))
}

// FileCapabilities are those of programs that serve the guest files of many users.
func FileCapabilities() []uintptr {
	return []uintptr{
		unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_SETUID, unix.CAP_SETGID,
		unix.CAP_SETFCAP,
	}
}

// limitCapabilities limits those of the programs that the thread starts, not its own.
func limitCapabilities(kept []uintptr) error {
	for c := range uintptr(64) {
		if slices.Contains(kept, c) {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil // the kernel has no more
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return nil
}
