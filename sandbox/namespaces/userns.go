package namespaces

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/thread"
)

// pinInUserNamespace creates the namespaces with a child process, because a process with several threads, as every Go
// program is, may not enter a new user namespace itself. The child has exited when it returns.
func (p *Pinner) pinInUserNamespace(ctx context.Context, r Request, kinds []kind) error {
	if p.holder == "" {
		return errors.New("a user namespace needs a holder program, none is configured")
	}
	// The kernel kills the child when the thread that started it ends (Pdeathsig), so that a crash of the daemon leaves
	// none. Therefore it has a thread that lives as long as the child is needed.
	err := thread.Run(func() error { return p.pinFromChild(r, kinds) })
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return thread.Run(func() error {
		others := kinds[1:] // a thread cannot enter the user namespace, and need not
		if err := enter(others); err != nil {
			return err
		}
		return p.configure(ctx, r)
	})
}

// pinFromChild starts the holder in new namespaces, pins them, and kills it.
func (p *Pinner) pinFromChild(r Request, kinds []kind) (err error) {
	child := exec.Command(p.holder)
	child.Dir = "/"
	child.Env = []string{} // nil means the daemon's
	child.SysProcAttr = &syscall.SysProcAttr{
		// In one clone the kernel creates the user namespace first, and it owns the others.
		Cloneflags:                 uintptr(flags(kinds)),
		UidMappings:                procMap(r.UIDs),
		GidMappings:                procMap(r.GIDs),
		GidMappingsEnableSetgroups: true,
		Pdeathsig:                  syscall.SIGKILL,
	}
	if err := child.Start(); err != nil {
		return fmt.Errorf("start %s in a user namespace: %w", p.holder, err)
	}
	defer func() {
		if kerr := child.Process.Kill(); kerr != nil && !errors.Is(kerr, os.ErrProcessDone) {
			err = errors.Join(err, kerr)
		}
		_ = child.Wait() // reports only that it was killed
	}()
	return bindAll(filepath.Join("/proc", strconv.Itoa(child.Process.Pid), "ns"), kinds)
}

func procMap(in []specs.LinuxIDMapping) []syscall.SysProcIDMap {
	out := make([]syscall.SysProcIDMap, len(in))
	for i, m := range in {
		out[i] = syscall.SysProcIDMap{ContainerID: int(m.ContainerID), HostID: int(m.HostID), Size: int(m.Size)}
	}
	return out
}

// rootOf returns the uid on the host of the namespace's root.
func rootOf(uids []specs.LinuxIDMapping) (uid uint32, ok bool) {
	for _, m := range uids {
		if m.ContainerID == 0 {
			return m.HostID, true
		}
	}
	return 0, false
}

// asOwner runs f with the root of the user namespace as the effective user of the calling thread, which must be one of
// thread.Run's, and without effective capabilities.
func (p *Pinner) asOwner(uids []specs.LinuxIDMapping, f func() error) (err error) {
	uid, ok := rootOf(uids)
	if !ok {
		return invalid("the user namespace maps no root, which must own its sysctls")
	}
	// When a thread changes its effective user the kernel disables core dumps and ptrace for the whole process. They
	// are enabled again below, by one thread at a time, when no thread has that user any longer.
	p.userMu.Lock()
	defer p.userMu.Unlock()
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("read dumpable: %w", err)
	}
	if err := setEffectiveUser(uid); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, setEffectiveUser(0))
		if dumpable == 1 {
			err = errors.Join(err, unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0))
		}
	}()
	return f()
}

// setEffectiveUser changes the effective user of the calling thread only; the real and the saved user stay root, so it
// can be undone. It is a raw system call because that of package syscall changes every thread of the process.
func setEffectiveUser(uid uint32) error {
	const keep = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
		return fmt.Errorf("set effective user %d: %w", uid, errno)
	}
	return nil
}
