package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// trees are detached mounts of the host, by their paths in the jail.
type trees map[string]int

func (t trees) close() {
	for _, fd := range t {
		_ = unix.Close(fd)
	}
}

// openTrees clones the mounts that the jail gets, where the host's paths are still known.
func openTrees(c Config) (trees, error) {
	t := trees{}
	binds := map[string]string{Work: c.Bundle}
	maps.Copy(binds, c.Files)
	for target, source := range binds {
		fd, err := cloneTree(unix.AT_FDCWD, source)
		if err == nil {
			err = setAttributes(fd, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID, unix.AT_RECURSIVE)
		}
		if err != nil {
			t.close()
			return nil, err
		}
		t[target] = fd
	}
	return t, nil
}

// cloneTree returns a detached copy of the mounts at and below a path, or dir itself if path is empty. Nothing that
// happens to it reaches the host's mounts.
func cloneTree(dir int, path string) (int, error) {
	const flags = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE | unix.AT_EMPTY_PATH
	fd, err := unix.OpenTree(dir, path, flags)
	if err != nil {
		return -1, fmt.Errorf("open mount tree %s: %w", path, err)
	}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Propagation: unix.MS_SLAVE})
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("propagation of mounts of %s: %w", path, err)
	}
	return fd, nil
}

// setAttributes adds attributes to a detached mount, with unix.AT_RECURSIVE also to those below it.
func setAttributes(tree int, attributes uint64, recursive uint) error {
	err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|recursive, &unix.MountAttr{Attr_set: attributes})
	if err != nil {
		return fmt.Errorf("mount attributes %#x: %w", attributes, err)
	}
	return nil
}

// attachTree mounts a detached tree on an open directory or file.
func attachTree(tree, target int) error {
	return unix.MoveMount(tree, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

const (
	// base is where the new root is built; any directory will do, it is covered only here.
	base = "/tmp"
	// sharedOptions bound what a guest can write next to its containers' directories.
	sharedOptions = "mode=755,size=16m,nr_inodes=16k"
)

// buildRoot makes a new root directory and leaves the old one. It starts process 1, see startInit.
func buildRoot(c Config, t trees) (ended chan struct{}, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, err
	}
	for _, m := range []struct {
		path, options string
		flags         uintptr
	}{
		{"", "mode=755,size=1m", 0}, // has the devices, and is read-only in the end
		{Memory, fmt.Sprintf("mode=700,uid=%d,size=%dm", c.User, c.Memory+16), unix.MS_NODEV},
		{Temp, fmt.Sprintf("mode=700,uid=%d,size=1m", c.User), unix.MS_NODEV},
		{Shared, sharedOptions, unix.MS_NODEV},
	} {
		if err := os.MkdirAll(base+m.path, 0o755); err != nil {
			return nil, err
		}
		if err := unix.Mount("podd-vm", base+m.path, "tmpfs", unix.MS_NOSUID|m.flags, m.options); err != nil {
			return nil, err
		}
	}
	ended, err = startInit(base + "/proc")
	if err := errors.Join(err, makeDevices(base+"/dev")); err != nil {
		return ended, err
	}
	for target, tree := range t {
		if err := attachAt(tree, base+target); err != nil {
			return ended, fmt.Errorf("%s: %w", target, err)
		}
	}
	return ended, errors.Join(linkLibraries(), changeRoot())
}

// linkLibraries makes the links of a merged /usr, if the jail has the host's.
func linkLibraries() error {
	if _, err := os.Lstat(base + "/usr"); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var errs []error
	for _, name := range []string{"lib", "lib64"} {
		errs = append(errs, os.Symlink("usr/"+name, filepath.Join(base, name)))
	}
	return errors.Join(errs...)
}

// makeDevices makes those that a monitor opens.
func makeDevices(dir string) error {
	for _, d := range []struct {
		name         string
		major, minor uint32
	}{
		{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"net/tun", 10, 200},
	} {
		path := filepath.Join(dir, d.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return fmt.Errorf("device %s: %w", d.name, err)
		}
		if err := os.Chmod(path, 0o666); err != nil { // whatever the file mode creation mask
			return err
		}
	}
	return nil
}

// attachAt makes the mount point, a directory or a file as the tree is, and mounts the tree.
func attachAt(tree int, path string) error {
	isDir, err := isDirectory(tree)
	if err != nil {
		return err
	}
	if isDir {
		err = os.MkdirAll(path, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
		err = os.WriteFile(path, nil, 0o644)
	}
	if err != nil {
		return err
	}
	target, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	return attachTree(tree, target)
}

func isDirectory(fd int) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	return st.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}

// changeRoot makes base the root, read-only: a broken program in the jail, which may make devices, finds no place where
// they could be opened.
func changeRoot() error {
	const old = "/old"
	if err := os.Mkdir(base+old, 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(base, base+old); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	return errors.Join(unix.Chdir("/"), unix.Unmount(old, unix.MNT_DETACH), os.Remove(old),
		unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID, ""))
}
