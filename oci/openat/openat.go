// Package openat opens files below a directory with openat2(2), which can refuse symbolic links and paths that leave
// the directory. It owns nothing and has no fallback: openat2 needs Linux 5.6.
//
// pathrs-lite of cyphar/filepath-securejoin is not used: after one failed openat2, with EMFILE for example, v0.7.0
// resolves paths itself for the rest of the process's life, and then follows magic links. It cannot refuse symbolic
// links (package logfile) or report which directories it has created (host.MakeVolumes), and takes 68 us where this
// takes 6.
package openat

import (
	"errors"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// retries bounds how often a lookup is repeated. The kernel returns EAGAIN if a concurrent rename or mount may have
// moved ".." out of the root.
const retries = 64

// NoLinks is the resolution of a path that stays below the directory and has no symbolic link, in its last part
// neither.
const NoLinks = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// Open opens path in the directory dir; dir nil is the working directory, for absolute paths. The file is closed on
// exec. The error is an *fs.PathError.
func Open(dir *os.File, path string, how unix.OpenHow) (*os.File, error) {
	at := unix.AT_FDCWD
	if dir != nil {
		at = int(dir.Fd())
	}
	how.Flags |= unix.O_CLOEXEC
	for range retries {
		fd, err := unix.Openat2(at, path, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), path), nil
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOSYS):
			return nil, errors.New("podd needs the system call openat2 (Linux 5.6)")
		}
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: unix.EAGAIN}
}

// MakeDir opens the directory name in dir with O_PATH, and creates it, with mode 0755, if it does not exist. A symbolic
// link is an error.
func MakeDir(dir *os.File, name string) (*os.File, error) {
	err := unix.Mkdirat(int(dir.Fd()), name, 0o755)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, &fs.PathError{Op: "mkdir", Path: name, Err: err}
	}
	return Open(dir, name, unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY, Resolve: NoLinks})
}

// Path is a path to the file that f has open, valid in this process while f is open.
func Path(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }
