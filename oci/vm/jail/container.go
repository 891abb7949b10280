package jail

import (
	"errors"
	"fmt"
	"os"
	"path"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Container is the directory below Shared of a container, which the guest and the host write.
func Container(id string) string { return path.Join(Shared, id) }

// container has the files that a container was given. The guest can rename the directories below Shared at any time, so
// that only descriptors lead to the host's files.
type container struct {
	// dir is Container, as it was made; uses are its shares.
	dir  *os.File
	uses []use
}

// AddContainer makes the directory of a container.
func (j *Jail) AddContainer(id string) error {
	return j.Do(func() error {
		if err := unix.Mkdir(Container(id), 0o700); err != nil {
			return fmt.Errorf("directory of container %s: %w", id, err)
		}
		dir, err := openDirectory(Shared, id)
		if err != nil {
			return fmt.Errorf("directory of container %s: %w", id, err)
		}
		j.containers[id] = &container{dir: dir}
		return nil
	})
}

// WriteConfig writes the config.json of a container into its directory.
func (j *Jail) WriteConfig(id string, config []byte) error {
	return j.Do(func() error {
		c, err := j.container(id)
		if err != nil {
			return err
		}
		return writeConfig(c.dir, config)
	})
}

func (j *Jail) container(id string) (*container, error) {
	if c := j.containers[id]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("container %s: %w", id, errdefs.ErrNotFound)
}

// openDirectory opens the new directory of a container. The guest may have put something else in its place:
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
