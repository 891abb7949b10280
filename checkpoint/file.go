package checkpoint

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile replaces the file at path with data: a reader sees the old content or the new one, never a part. It syncs
// nothing, so it is for files that may be lost with the power, and for a tmpfs. The file gets exactly this mode,
// whatever the umask and the mode of the old one. A symbolic link at path is replaced, not followed.
//
// The temporary file is in the same directory; its name begins with ".tmp-" (see Sweep) and has no suffix by which a
// program could take it for a configuration file. Errors name the file.
//
// Not moby/sys/atomicwriter or google/renameio: both always sync the file, and neither syncs the directory.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	return replaceFile(path, content(data), mode, false)
}

// WriteFileSync is WriteFile for a file that must survive a power loss: the file and its directory are synced.
func WriteFileSync(path string, data []byte, mode fs.FileMode) error {
	return FillFileSync(path, content(data), mode)
}

// FillFileSync is WriteFileSync for content that write writes. If write fails, the file at path stays as it was.
func FillFileSync(path string, write func(io.Writer) error, mode fs.FileMode) error {
	if err := replaceFile(path, write, mode, true); err != nil {
		return err
	}
	return syncFile(filepath.Dir(path))
}

func content(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// replaceFile replaces a file. If sync is true, its new content is on the disk before it has its name.
func replaceFile(path string, write func(io.Writer) error, mode fs.FileMode, sync bool) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), tmpPrefix+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if err = fillFile(f, write, mode, sync); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// fillFile writes, syncs if asked to, and closes a new file.
func fillFile(f *os.File, write func(io.Writer) error, mode fs.FileMode, sync bool) error {
	err := write(f)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr // some filesystems report a full disk only here
	}
	return err
}

// syncFile syncs a file, or the entries of a directory.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}
