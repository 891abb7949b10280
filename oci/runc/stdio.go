package runc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"github.com/moby/sys/user"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/process"
)

// chownInitPipes gives the pipes of a created container's first process, which are the monitor's, to its user if the
// process has a user namespace. They belong to the host's root, which is not mapped: opening /dev/stdout or /dev/stderr
// would fail, and the runtime cannot change that from inside the namespace. The process waits for Start.
func chownInitPipes(init process.Process, p *specs.Process) error {
	owner, ok, err := pipeOwner(init, p)
	if err != nil || !ok {
		return err
	}
	for fd := range 3 {
		f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", init.Pid, fd), unix.O_PATH, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // closed, or the process has died
		}
		if err != nil {
			return err
		}
		err = owner.chownPipe(f)
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// chownExecPipes does the same with the pipes of a command that is to run in the container.
func chownExecPipes(init process.Process, p *specs.Process, stdio [3]*os.File) error {
	owner, ok, err := pipeOwner(init, p)
	if err != nil || !ok {
		return err
	}
	for _, f := range stdio {
		if f == nil {
			continue
		}
		if err := owner.chownPipe(f); err != nil {
			return err
		}
	}
	return nil
}

// ids are a user and a group on the host.
type ids struct{ uid, gid int }

// pipeOwner returns the owner of the pipes of the process p in the user namespace of init: the user of p, as runtimes
// choose in the host's, and the namespace's root group. It reports false if init has the host's user namespace or has
// died.
func pipeOwner(init process.Process, p *specs.Process) (ids, bool, error) {
	proc := "/proc/" + strconv.Itoa(init.Pid)
	ours, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return ids{}, false, err
	}
	theirs, err := os.Readlink(proc + "/ns/user")
	if err != nil || theirs == ours {
		return ids{}, false, ignoreGone(err)
	}
	uids, err := user.ParseIDMapFile(proc + "/uid_map")
	if err != nil {
		return ids{}, false, ignoreGone(err)
	}
	gids, err := user.ParseIDMapFile(proc + "/gid_map")
	if err != nil || !init.Alive() {
		return ids{}, false, ignoreGone(err)
	}
	maps := user.IdentityMapping{UIDMaps: uids, GIDMaps: gids}
	uid, gid, err := maps.ToHost(int(p.User.UID), 0)
	return ids{uid, gid}, err == nil, nil // the runtime refuses a user who is not mapped
}

// chownPipe changes the owner of f if it is a pipe.
func (o ids) chownPipe(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
		return err
	}
	if err := unix.Fchownat(int(f.Fd()), "", o.uid, o.gid, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("chown of a pipe to the container's user: %w", err)
	}
	return nil
}

// ignoreGone returns nil for the error of reading /proc of a process that has died.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}
