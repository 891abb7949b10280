package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// openInRoot opens path with root as "/": symbolic links and ".." cannot leave it, magic links (those of /proc) are an
// error. The descriptor is O_PATH, because opening a device or a FIFO may have effects.
//
// It needs openat2(2), Linux 5.6, and has no fallback. For this reason pathrs-lite of cyphar/filepath-securejoin is not
// used: after one failed openat2, with EMFILE for example, v0.7.0 resolves paths itself for the rest of the process's
// life, and then follows magic links. It cannot refuse symbolic links (LogPath) or report which directories it has
// created (MakeVolumes), and takes 68 us where this takes 6.
func openInRoot(root, path string) (*os.File, error) {
	dir, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return openat2(dir, path, unix.OpenHow{Flags: unix.O_PATH, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
}

// retries bounds how often a lookup is repeated. The kernel returns EAGAIN if a concurrent rename or mount may have
// moved ".." out of the root.
const retries = 64

func openat2(dir *os.File, path string, how unix.OpenHow) (*os.File, error) {
	how.Flags |= unix.O_CLOEXEC
	for range retries {
		fd, err := unix.Openat2(int(dir.Fd()), path, &how)
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

// openRegular opens the file of an O_PATH descriptor for reading, if it is a regular file of at most limit bytes. The
// size is checked before anything is read: a sparse file of 10 GB takes no longer than an empty one.
func openRegular(f *os.File, limit int64) (*os.File, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, invalid("%s is not a regular file", f.Name())
	}
	if info.Size() > limit {
		return nil, invalid("%s has %d bytes, more than the %d that podd reads", f.Name(), info.Size(), limit)
	}
	opened, err := os.Open(descriptorPath(f))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", f.Name(), errors.Unwrap(err))
	}
	return opened, nil
}

// descriptorPath is a path to the file that f has open.
func descriptorPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }
