// Package confine restricts a process for good, so that hostile input which it parses can hurt little else: resource
// limits, capabilities, the file tree (Landlock) and system calls (seccomp).
//
// It knows nothing of images. Only the image package calls it, in processes that the daemon starts to pull an image.
package confine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"github.com/moby/sys/capability"
	"golang.org/x/sys/unix"
)

// Policy has the rights of a confined process. All others stay forbidden.
type Policy struct {
	// Memory bounds the writable private memory in bytes (RLIMIT_DATA). Zero: unlimited, as the race detector demands.
	Memory uint64
	// FileSize bounds each file in bytes (RLIMIT_FSIZE).
	FileSize uint64
	// CPU bounds the processor time in seconds (RLIMIT_CPU).
	CPU uint64
	// OpenFiles bounds the file descriptors (RLIMIT_NOFILE).
	OpenFiles uint64
	// Idle makes the process the last of its cgroup to get a processor (SCHED_IDLE, see sched(7)).
	Idle bool
	// Read are files and directories that may be read, Write those that may also be changed, Execute those that may be
	// read and executed, as this program may always be. Missing ones are skipped. Kernels without Landlock (before
	// Linux 5.13, or disabled) do not enforce this.
	Read, Write, Execute []string
	// Data are directories that are mounted nodev, nosuid and noexec in a mount namespace of the process, whose /proc
	// shows only its own processes.
	Data []string
	// Offline forbids the network.
	Offline bool
	// Capabilities are all that the process and its children can have.
	Capabilities []capability.Cap
}

// Attributes are those with which a process must be started that calls Exec. It is process 1 of a PID namespace of its
// own: it is root, and could otherwise signal other processes of root, and change their limits. A signal for the
// caller's group is not for it.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
}

// Exec restricts the calling process and replaces it by this program with the arguments args and the environment env.
// It returns on failure only. Every thread of the new program is restricted, and so is every child of it.
//
// It is killed when its parent ends (PR_SET_PDEATHSIG: with the thread that started it). If that has happened before
// the call, only the end of its input tells it.
func (p Policy) Exec(args, env []string) error {
	runtime.LockOSThread() // credentials and filters are a thread's; exec keeps those of the calling one
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("set the signal for the parent's death: %w", err)
	}
	if os.Getpid() != 1 {
		return errors.New("the process has no separate PID namespace")
	}
	for _, restrict := range []func() error{
		p.restrictMounts, p.dropCapabilities, p.restrictFiles, p.limitResources, p.filterSystemCalls,
	} {
		if err := restrict(); err != nil {
			return err
		}
	}
	return fmt.Errorf("execute itself: %w", unix.Exec("/proc/self/exe", args, env))
}

// Rights of Landlock. Execution is not among them: landlock.RODirs would include it.
const (
	readFiles  = ll.AccessFSReadFile
	readDirs   = readFiles | ll.AccessFSReadDir
	writeFiles = readFiles | ll.AccessFSWriteFile | ll.AccessFSTruncate
	writeDirs  = readDirs | writeFiles | ll.AccessFSRemoveDir | ll.AccessFSRemoveFile | ll.AccessFSMakeChar |
		ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSMakeFifo | ll.AccessFSMakeBlock | ll.AccessFSMakeSym |
		ll.AccessFSRefer
)

// restrictFiles restricts paths, signals and abstract sockets, as far as the kernel's version of Landlock can. The
// network stays open, for registries.
func (p Policy) restrictFiles() error {
	read, write, execute := present(p.Read), present(p.Write), present(p.Execute)
	rules := landlock.V9
	rules.HandledAccessNet = 0
	// One call: a second one, even without paths, would forbid renames to another directory.
	err := rules.BestEffort().Restrict(
		landlock.PathAccess(readDirs, read.dirs...), landlock.PathAccess(readFiles, read.files...),
		landlock.PathAccess(writeDirs, write.dirs...), landlock.PathAccess(writeFiles, write.files...),
		landlock.RODirs(execute.dirs...), landlock.ROFiles(append(execute.files, "/proc/self/exe")...),
	)
	if err != nil {
		return fmt.Errorf("restrict files: %w", err)
	}
	return nil
}

// FilesRestricted reports whether the kernel has Landlock, by which Exec restricts files.
func FilesRestricted() bool {
	version, err := ll.LandlockGetABIVersion()
	return err == nil && version > 0
}

// sorted are existing paths by kind: Landlock has other rights for directories than for files.
type sorted struct{ dirs, files []string }

func present(paths []string) sorted {
	var s sorted
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case err != nil: // missing, or not reachable either way
		case info.IsDir():
			s.dirs = append(s.dirs, path)
		default:
			s.files = append(s.files, path)
		}
	}
	return s
}

func (p Policy) dropCapabilities() error {
	const all = capability.CAPS | capability.BOUNDS | capability.AMBS
	self, err := capability.NewPid2(0)
	if err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	self.Clear(all)
	self.Set(capability.EFFECTIVE|capability.PERMITTED|capability.BOUNDING, p.Capabilities...)
	if err := self.Apply(all); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

func (p Policy) limitResources() error {
	for _, l := range []struct {
		name     string
		resource int
		value    uint64
	}{
		{"memory", unix.RLIMIT_DATA, p.Memory},
		{"file size", unix.RLIMIT_FSIZE, p.FileSize},
		{"processor time", unix.RLIMIT_CPU, p.CPU},
		{"open files", unix.RLIMIT_NOFILE, p.OpenFiles},
	} {
		if err := lower(l.resource, l.value); err != nil {
			return fmt.Errorf("limit %s: %w", l.name, err)
		}
	}
	if p.Idle {
		err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
		if err != nil {
			return fmt.Errorf("lower the priority: %w", err)
		}
	}
	core := syscall.Rlimit{} // memory may hold a registry's password
	if err := syscall.Setrlimit(unix.RLIMIT_CORE, &core); err != nil {
		return fmt.Errorf("disable core dumps: %w", err)
	}
	return nil
}

// LimitMemory bounds the writable private memory of the calling process in bytes (RLIMIT_DATA), for good. Zero:
// unlimited.
func LimitMemory(most uint64) error {
	if err := lower(unix.RLIMIT_DATA, most); err != nil {
		return fmt.Errorf("limit memory: %w", err)
	}
	return nil
}

// lower sets both values of a limit, unless it is lower already. Zero changes nothing.
func lower(resource int, value uint64) error {
	if value == 0 {
		return nil
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(resource, &old); err != nil {
		return err
	}
	value = min(value, old.Max)
	return syscall.Setrlimit(resource, &syscall.Rlimit{Cur: value, Max: value})
}
