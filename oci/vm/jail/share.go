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

// container has the descriptors of what a container was given. The guest can rename the directories below Shared at any
// time, so that only they lead to what the host has made.
type container struct {
	// dir is Container, as it was made.
	dir *os.File
	// mounts are the roots of its mounts, in the order of their numbers.
	mounts []int
}

func (c *container) close() {
	_ = c.dir.Close()
	for _, fd := range c.mounts {
		_ = unix.Close(fd)
	}
}

// AddContainer makes the directory of a container, with its config.json.
func (j *Jail) AddContainer(id string, config []byte) error {
	return j.Do(func() error {
		if err := unix.Mkdir(Container(id), 0o700); err != nil {
			return fmt.Errorf("directory of container %s: %w", id, err)
		}
		dir, err := openDirectory(Shared, id)
		if err != nil {
			return fmt.Errorf("directory of container %s: %w", id, err)
		}
		j.containers[id] = &container{dir: dir}
		return writeConfig(dir, config)
	})
}

// openDirectory opens the new directory of a container. The guest may have put something else in its place meanwhile:
// a link, as to /proc/1/root, or to a file system of the host that is mounted for another container.
func openDirectory(shared, name string) (*os.File, error) {
	parent, err := unix.Open(shared, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(parent)
	how := &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: inDirectory}
	fd, err := unix.Openat2(parent, name, how)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// writeConfig writes a container's config.json into its directory.
func writeConfig(dir *os.File, config []byte) error {
	fd, err := unix.Openat2(int(dir.Fd()), "config.json", &unix.OpenHow{
		Flags: unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY | unix.O_CLOEXEC, Mode: 0o600, Resolve: inDirectory,
	})
	if err != nil {
		return fmt.Errorf("make config.json: %w", err)
	}
	f := os.NewFile(uintptr(fd), "config.json")
	_, err = f.Write(config)
	return errors.Join(err, f.Close())
}

// inDirectory has a path lead to nothing outside of the directory in which it begins.
const inDirectory = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV | unix.RESOLVE_BENEATH

// Source is a file or directory of the host that a container gets.
type Source struct {
	Path string
	// ReadOnly makes it read-only without what is mounted below it, RecursiveReadOnly with that.
	ReadOnly, RecursiveReadOnly bool
}

// Share makes a source appear as /shared/<id>/<number> and returns that path. The numbers of a container begin with 0.
func (j *Jail) Share(id string, number int, s Source) (string, error) {
	tree, err := openSource(s)
	if err != nil {
		return "", err
	}
	err = j.Do(func() error {
		c := j.containers[id]
		if c == nil {
			return fmt.Errorf("container %s: %w", id, errdefs.ErrNotFound)
		}
		if err := attachIn(c.dir, strconv.Itoa(number), tree); err != nil {
			return err
		}
		c.mounts = append(c.mounts, tree)
		return nil
	})
	if err != nil {
		_ = unix.Close(tree)
		return "", fmt.Errorf("share %s: %w", s.Path, err)
	}
	return path.Join(Container(id), strconv.Itoa(number)), nil
}

// openSource clones the mounts of a source. Only files and directories can be shared. Devices that the guest makes on
// its file systems are the guest's: no process in the jail can open them as the host's. (User-Mode Linux asks the host
// whether a file may be executed, so that the mounts cannot be noexec.)
func openSource(s Source) (int, error) {
	tree, err := cloneTree(s.Path)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	err = unix.Fstat(tree, &st)
	if kind := st.Mode & unix.S_IFMT; err == nil && kind != unix.S_IFDIR && kind != unix.S_IFREG {
		err = fmt.Errorf("%s is neither a file nor a directory, so a virtual machine cannot have it: %w", s.Path,
			errdefs.ErrInvalidArgument)
	}
	if err == nil {
		err = setAttributes(tree, unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID, unix.AT_RECURSIVE)
	}
	if err == nil && s.ReadOnly {
		err = setAttributes(tree, unix.MOUNT_ATTR_RDONLY, 0)
	}
	if err == nil && s.RecursiveReadOnly {
		err = setAttributes(tree, unix.MOUNT_ATTR_RDONLY, unix.AT_RECURSIVE)
	}
	if err != nil {
		_ = unix.Close(tree)
		return -1, err
	}
	return tree, nil
}

// attachIn makes the mount point in the directory and mounts the tree. The guest writes there too: no link of it is
// followed.
func attachIn(dir *os.File, name string, tree int) error {
	isDir, err := isDirectory(tree)
	if err != nil {
		return err
	}
	in := int(dir.Fd())
	if isDir {
		err = unix.Mkdirat(in, name, 0o755)
	} else {
		err = unix.Mknodat(in, name, unix.S_IFREG|0o644, 0)
	}
	if err != nil {
		return err
	}
	point, err := unix.Openat2(in, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: inDirectory})
	if err != nil {
		return err
	}
	defer unix.Close(point)
	return attachTree(tree, point)
}
