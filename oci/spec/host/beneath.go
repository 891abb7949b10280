package host

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/openat"
)

// openInRoot opens path with root as "/": symbolic links and ".." cannot leave it, magic links (those of /proc) are an
// error. The descriptor is O_PATH, because opening a device or a FIFO may have effects.
func openInRoot(root, path string) (*os.File, error) {
	dir, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return openat.Open(dir, path, unix.OpenHow{
		Flags: unix.O_PATH, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
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
	opened, err := os.Open(openat.Path(f))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", f.Name(), errors.Unwrap(err))
	}
	return opened, nil
}
