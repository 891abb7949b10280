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

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// pinInUserNamespace creates the namespaces with a child process, because a process with several threads, which
// every Go program is, may not enter a new user namespace itself. The child is gone when it returns.
func (p *Pinner) pinInUserNamespace(ctx context.Context, r Request, kinds []kind) error {
	if p.holder == "" {
		return errors.New("no holder program is configured, which a user namespace needs")
	}
	// The child dies with the thread that started it (Pdeathsig), so a crash of the daemon leaves none behind; hence
	// a thread of its own, which lives exactly as long as the child is needed.
	err := onThread(func() error { return p.pinFromChild(r, kinds) })
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return onThread(func() error {
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
	child.Env = []string{} // nil would hand over the daemon's
	child.SysProcAttr = &syscall.SysProcAttr{
		// One clone for all: the kernel makes the user namespace first and the others belong to it.
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
		_ = child.Wait() // reaps; that it was killed is no news
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

// rootOf returns the user outside that is root inside the namespace.
func rootOf(uids []specs.LinuxIDMapping) (uid uint32, ok bool) {
	for _, m := range uids {
		if m.ContainerID == 0 {
			return m.HostID, true
		}
	}
	return 0, false
}

// asOwner runs f while the calling thread, which must be one of onThread's, has the root of the user namespace as its
// effective user, and no effective capability.
func (p *Pinner) asOwner(uids []specs.LinuxIDMapping, f func() error) (err error) {
	uid, ok := rootOf(uids)
	if !ok {
		return fmt.Errorf("%w: the user namespace maps no root, who must own its sysctls", errdefs.ErrInvalidArgument)
	}
	// The kernel answers a change of the effective user by forbidding core dumps and ptrace for the whole process, for
	// good. It is put back below, by one thread at a time, once none is that user any more.
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

// setEffectiveUser changes the effective user of the calling thread only; the real and the saved one stay root, so it
// can be undone. The raw call on purpose: that of package syscall changes every thread of the process.
func setEffectiveUser(uid uint32) error {
	const keep = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
		return fmt.Errorf("become user %d: %w", uid, errno)
	}
	return nil
}
