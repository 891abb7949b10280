package starter

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/process"
)

// ErrNoFIFO is the error of a path without a FIFO, or with one that another user may have put there.
var ErrNoFIFO = errors.New("no FIFO of the runtime")

// Waits reports whether the process still waits on the FIFO: whether it has the FIFO open. Runtimes close it before
// anything else when the process is released. The error is ErrNoFIFO if the FIFO was removed or replaced.
//
// A process that was released can have files of any name open: it is believed that it waits only if it has the FIFO.
func Waits(p process.Process, fifo string) (bool, error) {
	want, err := statFIFO(fifo)
	if err != nil {
		return false, err
	}
	dir := filepath.Join("/proc", strconv.Itoa(p.Pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, ignoreGone(err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		target, err := os.Readlink(path)
		if err := ignoreGone(err); err != nil {
			return false, err
		}
		// Other files are left alone: they may be of a volume that hangs. So may one of this name, of a process that
		// was released: ask the kernel.
		if !strings.HasPrefix(filepath.Base(target), filepath.Base(fifo)) {
			continue
		}
		var have unix.Statx_t
		err = unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_INO, &have)
		switch {
		case err != nil:
			return false, ignoreGone(err)
		case have.Ino != want.Ino || unix.Mkdev(have.Dev_major, have.Dev_minor) != want.Dev:
			return false, ErrNoFIFO // "exec.fifo (deleted)": the path has another one
		}
		return p.Alive(), nil // else the pid was reused
	}
	return false, nil
}

// ignoreGone returns nil for the error of a process that has exited, or of a file that it has closed.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// statFIFO follows no link: one in place of the directory has the mode 0777. In a user namespace the FIFO belongs to
// the container's root, its directory never does.
func statFIFO(path string) (*syscall.Stat_t, error) {
	dir, err := os.Lstat(filepath.Dir(path))
	if err != nil || dir.Mode()&0o022 != 0 || dir.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		return nil, ErrNoFIFO
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		return nil, ErrNoFIFO
	}
	return info.Sys().(*syscall.Stat_t), nil
}
