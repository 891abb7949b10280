package checkpoint

import (
	"fmt"
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
	return replaceFile(path, data, mode, false)
}

// WriteFileSync is WriteFile for a file that must survive a power loss: the file and its directory are synced.
func WriteFileSync(path string, data []byte, mode fs.FileMode) error {
	return replaceFile(path, data, mode, true)
}

func replaceFile(path string, data []byte, mode fs.FileMode, sync bool) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, tmpPrefix+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if err = fillFile(f, data, mode, sync); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil || !sync {
		return err
	}
	return syncDir(dir)
}

// fillFile writes, syncs if asked to, and closes a new file.
func fillFile(f *os.File, data []byte, mode fs.FileMode, sync bool) error {
	_, err := f.Write(data)
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

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}
