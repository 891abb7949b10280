package jail

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// removedAtOnce is how many names of a directory are read at a time.
	removedAtOnce = 256
	// removedAtMost bounds the names of a directory that are read: the guest, which may have as many files as
	// sharedOptions let it, can make new ones as fast as they are removed.
	removedAtMost = 32 << 10
)

// RemoveContainer gives up the files that a container was given and removes its directory with the files in it.
// Directories that the guest has made and filled remain, as part of what sharedOptions let it have, until the machine
// ends: nothing that it has made is entered.
func (j *Jail) RemoveContainer(id string) error {
	return j.Do(func() error {
		c := j.containers[id]
		if c == nil {
			return nil
		}
		for i := len(c.uses) - 1; i >= 0; i-- {
			if err := j.end(c.uses[i]); err != nil {
				return err
			}
			c.uses = c.uses[:i]
		}
		delete(j.containers, id)
		defer c.dir.Close()
		if err := removeFiles(c.dir, removedAtMost); err != nil {
			return err
		}
		err := unix.Rmdir(Container(id))
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, fs.ErrNotExist) {
			return nil // the guest's doing
		}
		return err
	})
}

// removeFiles removes the files and empty directories of a directory, about as many as most. What cannot be removed is
// the guest's doing: its own directories, or a file that it has mounted.
func removeFiles(dir *os.File, most int) error {
	for read := 0; read < most; read += removedAtOnce {
		names, err := dir.Readdirnames(removedAtOnce)
		for _, name := range names {
			if unix.Unlinkat(int(dir.Fd()), name, 0) != nil {
				_ = unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil // the rest ends with the machine
}
