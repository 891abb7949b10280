package jail

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Source is a file or directory of the host that a container gets.
type Source struct {
	Path string
	// ReadOnly makes it read-only except the mounts below it, RecursiveReadOnly with them.
	ReadOnly, RecursiveReadOnly bool
}

// Given is a source as the guest has it: at Path, the same one for every container with that source. The guest makes it
// read-only for a container, unless AsAsked: then the host has.
type Given struct {
	Path    string
	AsAsked bool
}

// share is a source in the jail: one mount, whatever the number of its users, so that its files are the same ones for
// the guest's kernel, with their locks, sockets and watches, and stay when one of the users ends.
type share struct {
	key  shareKey
	name string
	// tree is the root of the mount.
	tree int
	// users are the containers' uses of it, writers those that may write. Without one the mount is read-only.
	users, writers int
	// fixed is true for a mount that is always read-only.
	fixed bool
}

// shareKey identifies a source: the file and the mount of the host in which it was found. Sources with mounts below
// them, of which read-only uses have only a part read-only, are one share for each kind of use.
type shareKey struct {
	major, minor uint32
	inode, mount uint64
	kind         Source // without Path
}

// use is one use of a share by a container.
type use struct {
	*share
	writes bool
}

// sharesName is the directory in Shared of all shares; no container's ID begins with a dot.
const sharesName = ".shares"

// Share gives a source to a container.
func (j *Jail) Share(id string, s Source) (Given, error) {
	fresh, err := openSource(s)
	if err != nil {
		return Given{}, fmt.Errorf("share %s: %w", s.Path, err)
	}
	var given Given
	err = j.Do(func() error {
		c, err := j.container(id)
		if err != nil {
			return errors.Join(err, unix.Close(fresh.tree))
		}
		sh, err := j.attach(fresh)
		if err != nil {
			return err
		}
		u := use{sh, !s.ReadOnly && !s.RecursiveReadOnly}
		c.uses = append(c.uses, u)
		given = Given{Path: path.Join(Shared, sharesName, sh.name), AsAsked: sh.key.kind != Source{}}
		return u.begin()
	})
	if err != nil {
		return Given{}, fmt.Errorf("share %s: %w", s.Path, err)
	}
	return given, nil
}

// attach returns the share of the same source, or makes fresh one.
func (j *Jail) attach(fresh *share) (*share, error) {
	if have := j.shares[fresh.key]; have != nil {
		return have, unix.Close(fresh.tree)
	}
	fresh.name = strconv.Itoa(j.named)
	j.named++
	if err := attachIn(j.sharesDir, fresh.name, fresh.tree); err != nil {
		return nil, errors.Join(err, unix.Close(fresh.tree))
	}
	j.shares[fresh.key] = fresh
	return fresh, nil
}

// begin counts the use. Each is counted, so that end can undo it after an error, too.
func (u use) begin() error {
	u.users++
	if !u.writes {
		return nil
	}
	u.writers++
	if u.writers > 1 || u.fixed {
		return nil
	}
	return unix.MountSetattr(u.tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
}

// end gives up a use of a share, which ends with the last one.
func (j *Jail) end(u use) error {
	if u.users == 1 {
		if err := j.unmount(u.name); err != nil {
			return fmt.Errorf("unmount share %s: %w", u.name, err)
		}
		delete(j.shares, u.key)
		_ = unix.Close(u.tree)
		// Whatever the guest has put in its place: it counts as the guest's.
		if unix.Unlinkat(j.sharesDir, u.name, 0) != nil {
			_ = unix.Unlinkat(j.sharesDir, u.name, unix.AT_REMOVEDIR)
		}
	}
	u.users--
	if !u.writes {
		return nil
	}
	u.writers--
	if u.users > 0 && u.writers == 0 && !u.fixed {
		// It stays writable if the guest has not closed the files that it wrote.
		_ = setAttributes(u.tree, unix.MOUNT_ATTR_RDONLY, 0)
	}
	return nil
}

// unmount unmounts a share. The guest can rename its directory, not the mount.
func (j *Jail) unmount(name string) error {
	if err := unix.Fchdir(j.sharesDir); err != nil {
		return err
	}
	return errors.Join(unix.Unmount(name, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW), unix.Chdir(Work))
}

// openSource clones the mounts of a source. Only files and directories can be shared. Devices that the guest makes on
// its file systems are the guest's: no process in the jail can open them as the host's. (User-Mode Linux asks the host
// whether a file may be executed, so that the mounts cannot be noexec.)
func openSource(s Source) (*share, error) {
	fd, err := unix.Open(s.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	key, err := identify(fd, s)
	if err != nil {
		return nil, err
	}
	tree, err := cloneTree(fd, "")
	if err != nil {
		return nil, err
	}
	sh := &share{key: key, tree: tree}
	if err := sh.restrict(); err != nil {
		return nil, errors.Join(err, unix.Close(tree))
	}
	return sh, nil
}

// restrict takes from a new share's mounts what no guest needs, and the right to write until somebody may.
func (sh *share) restrict() error {
	if err := setAttributes(sh.tree, unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID, unix.AT_RECURSIVE); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(sh.tree, &st); err != nil {
		return err
	}
	sh.fixed = st.Flags&unix.ST_RDONLY != 0
	recursive := uint(0)
	if sh.key.kind.RecursiveReadOnly {
		recursive = unix.AT_RECURSIVE
	}
	return setAttributes(sh.tree, unix.MOUNT_ATTR_RDONLY, recursive)
}

// identify returns the key of an open source.
func identify(fd int, s Source) (shareKey, error) {
	var st unix.Statx_t
	// A kernel before 6.8 gives only the id that the next mount can get when this one is gone.
	const wanted = unix.STATX_TYPE | unix.STATX_INO | unix.STATX_MNT_ID | unix.STATX_MNT_ID_UNIQUE
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, wanted, &st); err != nil {
		return shareKey{}, err
	}
	key := shareKey{major: st.Dev_major, minor: st.Dev_minor, inode: st.Ino, mount: st.Mnt_id}
	switch kind := st.Mode & unix.S_IFMT; {
	case kind == unix.S_IFREG:
		return key, nil
	case kind != unix.S_IFDIR:
		return key, fmt.Errorf("it is neither a file nor a directory, so a virtual machine cannot have it: %w",
			errdefs.ErrInvalidArgument)
	case !s.ReadOnly && !s.RecursiveReadOnly:
		return key, nil
	}
	below, err := hasMountsBelow(fd)
	if below {
		key.kind = Source{ReadOnly: s.ReadOnly, RecursiveReadOnly: s.RecursiveReadOnly}
	}
	return key, err
}

// hasMountsBelow reports whether something is mounted below an open directory.
func hasMountsBelow(fd int) (bool, error) {
	dir, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return false, err
	}
	found, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		below := strings.HasPrefix(m.Mountpoint, strings.TrimSuffix(dir, "/")+"/")
		return !below, below
	})
	return len(found) > 0, err
}

// attachIn makes the mount point in the directory and mounts the tree. The guest writes there too: no link of it is
// followed.
func attachIn(dir int, name string, tree int) error {
	isDir, err := isDirectory(tree)
	if err != nil {
		return err
	}
	if isDir {
		err = unix.Mkdirat(dir, name, 0o755)
	} else {
		err = unix.Mknodat(dir, name, unix.S_IFREG|0o644, 0)
	}
	if err != nil {
		return err
	}
	point, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: inDirectory})
	if err != nil {
		return err
	}
	defer unix.Close(point)
	return attachTree(tree, point)
}
