package driver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// KernelRecursiveReadOnly reports whether the kernel has mount_setattr(2) (Linux 5.12), which recursive read-only
// mounts need. The arguments of the call are invalid.
func KernelRecursiveReadOnly() bool {
	err := unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE,
		&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	return !errors.Is(err, unix.ENOSYS)
}

// KernelIDMap reports whether containers can run in user namespaces with idmapped mounts of the filesystem of dir: it
// maps the ids of a detached copy of a mount, which no other process sees.
func KernelIDMap(dir string) bool {
	userns, err := newUserNamespace()
	if err != nil {
		return false
	}
	defer userns.Close()
	if _, err := os.Stat(dir); err != nil {
		dir = "/run"
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return false
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns.Fd())}
	return unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr) == nil
}

// newUserNamespace opens a new user namespace. Its process is a copy of this program, stopped by ptrace before its
// first instruction and killed.
func newUserNamespace() (*os.File, error) {
	cmd := exec.Command("/proc/self/exe")
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 65536, Size: 65536}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, Ptrace: true, Pdeathsig: syscall.SIGKILL,
	}
	// The tracer is a thread: it must be the same from fork to kill.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("create user namespace: %w", err)
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // reports the kill
	return ns, err
}
