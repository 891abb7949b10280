package layers

import (
	"errors"
	"os"
	"path"
	"strings"
	"time"

	"github.com/vbatts/tar-split/archive/tar"
	"go.podman.io/storage/pkg/archive"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/openat"
)

// overlayPrefix begins the names of the attributes of overlayfs.
const overlayPrefix = "trusted.overlay."

// setAttributes gives a file the owner, mode, extended attributes and times of an entry. Those of overlayfs are
// omitted: an image must not redirect lookups or hide files but by whiteouts. So is the label of SELinux, which is that
// of the node. The times of a directory are set at the end.
func (t *tree) setAttributes(h *tar.Header, name string) error {
	isLink := h.Typeflag == tar.TypeSymlink
	if h.Typeflag == tar.TypeLink {
		st, err := t.stat(name)
		if err != nil {
			return err
		}
		isLink = st.Mode&unix.S_IFMT == unix.S_IFLNK
		if int(st.Uid) == h.Uid && int(st.Gid) == h.Gid && (isLink || int64(st.Mode&modeBits) == h.Mode&modeBits) {
			return nil // a chown would remove the file's capabilities
		}
	}
	if err := t.chown(h, name); err != nil {
		return err
	}
	if !isLink {
		if err := t.chmod(h, name); err != nil {
			return err
		}
	}
	if err := t.setXattrs(h, name); err != nil {
		return err
	}
	times := timesOf(h)
	if h.Typeflag == tar.TypeDir {
		t.dirs = append(t.dirs, dirTimes{path.Clean("/" + h.Name), times})
		return nil
	}
	return setTimes(t.parent.File, name, times)
}

// modeBits are those that chmod(2) sets.
const modeBits = 0o7777

func (t *tree) chown(h *tar.Header, name string) error {
	err := unix.Fchownat(int(t.parent.Fd()), name, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW)
	return os.NewSyscallError("chown", err)
}

// chmod must come after chown, which removes bits. The file is not a symbolic link.
func (t *tree) chmod(h *tar.Header, name string) error {
	return os.NewSyscallError("chmod", unix.Fchmodat(int(t.parent.Fd()), name, uint32(h.Mode&modeBits), 0))
}

func (t *tree) setXattrs(h *tar.Header, name string) error {
	for record, value := range h.PAXRecords {
		attribute, ok := strings.CutPrefix(record, archive.PaxSchilyXattr)
		if !ok || attribute == "security.selinux" || strings.HasPrefix(attribute, overlayPrefix) {
			continue
		}
		err := unix.Lsetxattr(t.path(name), attribute, []byte(value), 0)
		if err == nil || errors.Is(err, unix.ENOTSUP) { // the filesystem does not have it
			continue
		}
		if errors.Is(err, unix.EPERM) && strings.HasPrefix(attribute, "user.") && !t.isFileOrDir(name) {
			continue // xattr(7): no such file can have it; builders copy what other storage has let them see
		}
		return os.NewSyscallError("setxattr "+attribute, err)
	}
	return nil
}

func (t *tree) isFileOrDir(name string) bool {
	st, err := t.stat(name)
	return err == nil && (st.Mode&unix.S_IFMT == unix.S_IFREG || st.Mode&unix.S_IFMT == unix.S_IFDIR)
}

// timesOf returns the times of access and modification of an entry. Many tars have the second only.
func timesOf(h *tar.Header) [2]unix.Timespec {
	access := h.AccessTime
	if access.Before(h.ModTime) {
		access = h.ModTime
	}
	return [2]unix.Timespec{timespec(access), timespec(h.ModTime)}
}

func timespec(t time.Time) unix.Timespec {
	return unix.Timespec{Sec: t.Unix(), Nsec: int64(t.Nanosecond())}
}

func setTimes(dir *os.File, name string, times [2]unix.Timespec) error {
	err := unix.UtimesNanoAt(int(dir.Fd()), name, times[:], unix.AT_SYMLINK_NOFOLLOW)
	return os.NewSyscallError("utimensat", err)
}

// setDirTimes sets the times of the directories. A later entry may have replaced one.
func (t *tree) setDirTimes() error {
	for _, d := range t.dirs {
		dir, err := openat.Open(t.root, "."+d.name, unix.OpenHow{
			Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_IN_ROOT,
		})
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			continue
		}
		if err != nil {
			return err
		}
		if err := errors.Join(setTimes(dir, ".", d.times), dir.Close()); err != nil {
			return err
		}
	}
	return nil
}
