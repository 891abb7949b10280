package jail

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Container is the directory below Shared of a container, which the guest and the host write.
func Container(id string) string { return path.Join(Shared, id) }

// AddContainer makes the directory of a container, with its config.json.
func (j *Jail) AddContainer(id string, config []byte) error {
	return j.Do(func() error {
		shared, err := os.OpenRoot(Shared)
		if err != nil {
			return err
		}
		defer shared.Close()
		if err := shared.Mkdir(id, 0o700); err != nil {
			return fmt.Errorf("directory of container %s: %w", id, err)
		}
		return writeConfig(shared, id, config)
	})
}

// writeConfig writes a container's config.json. The guest may have put a link in the place of the directory meanwhile,
// as to /proc/1/root: nothing outside of the shared directory is opened.
func writeConfig(shared *os.Root, id string, config []byte) error {
	f, err := shared.OpenFile(path.Join(id, "config.json"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(config)
	return errors.Join(err, f.Close())
}

// Source is a file or directory of the host that a container gets.
type Source struct {
	Path string
	// ReadOnly makes it read-only without what is mounted below it, RecursiveReadOnly with that.
	ReadOnly, RecursiveReadOnly bool
}

// Share makes a source appear as /shared/<id>/<number> and returns that path.
func (j *Jail) Share(id string, number int, s Source) (string, error) {
	tree, err := openSource(s)
	if err != nil {
		return "", err
	}
	defer unix.Close(tree)
	target := path.Join(Container(id), strconv.Itoa(number))
	err = j.Do(func() error {
		if err := attachBeneath(tree, target); err != nil {
			return err
		}
		j.mounts[id] = append(j.mounts[id], target)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("share %s: %w", s.Path, err)
	}
	return target, nil
}

// openSource clones the mounts of a source. Only files and directories can be shared.
func openSource(s Source) (int, error) {
	var attributes uint64
	if s.ReadOnly || s.RecursiveReadOnly {
		attributes = unix.MOUNT_ATTR_RDONLY
	}
	tree, err := cloneTree(s.Path, attributes)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	err = unix.Fstat(tree, &st)
	if kind := st.Mode & unix.S_IFMT; err == nil && kind != unix.S_IFDIR && kind != unix.S_IFREG {
		err = fmt.Errorf("%s is neither a file nor a directory, so a virtual machine cannot have it: %w", s.Path,
			errdefs.ErrInvalidArgument)
	}
	if err == nil && s.RecursiveReadOnly {
		err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE,
			&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	}
	if err != nil {
		_ = unix.Close(tree)
		return -1, err
	}
	return tree, nil
}

// attachBeneath makes the mount point and mounts the tree. The guest writes there too: no link of it is followed.
func attachBeneath(tree int, target string) error {
	isDir, err := isDirectory(tree)
	if err != nil {
		return err
	}
	dir, err := unix.Openat2(unix.AT_FDCWD, path.Dir(target),
		&unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	name := path.Base(target)
	if isDir {
		err = unix.Mkdirat(dir, name, 0o755)
	} else {
		err = unix.Mknodat(dir, name, unix.S_IFREG|0o644, 0)
	}
	if err != nil {
		return err
	}
	point, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	})
	if err != nil {
		return err
	}
	defer unix.Close(point)
	return attachTree(tree, point)
}

// RemoveContainer removes what a container was given. Its directory remains if something is still mounted in it: what
// is below belongs to the host.
func (j *Jail) RemoveContainer(id string) error {
	return j.Do(func() error {
		var errs []error
		mounts := j.mounts[id]
		for i := len(mounts) - 1; i >= 0; i-- {
			err := unix.Unmount(mounts[i], unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("unmount %s: %w", mounts[i], err))
			}
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
		delete(j.mounts, id)
		return removeTree(Container(id))
	})
}
