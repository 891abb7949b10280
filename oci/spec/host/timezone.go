package host

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// LocalTimezone is the name of the node's own time zone.
const LocalTimezone = "Local"

// maxTimezone bounds a file of the time zone database; the largest has 4 kB.
const maxTimezone = 64 << 10

// zoneinfo is the node's time zone database.
const zoneinfo = "/usr/share/zoneinfo"

// ReadTimezone returns the file of the node's time zone database (tzfile(5)) with that name, the node's own zone for
// LocalTimezone, and nil for "".
func ReadTimezone(name string) ([]byte, error) {
	path := filepath.Join(zoneinfo, name)
	switch {
	case name == "":
		return nil, nil
	case strings.EqualFold(name, LocalTimezone):
		path = "/etc/localtime"
	case !filepath.IsLocal(name):
		return nil, invalid("%q is not the name of a time zone", name)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("time zone %q: %w", name, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxTimezone))
	if err != nil {
		return nil, fmt.Errorf("time zone %q: %w", name, err)
	}
	if !bytes.HasPrefix(data, []byte("TZif")) {
		return nil, invalid("time zone %q: %s is not a file of the time zone database", name, path)
	}
	return data, nil
}

// SetTimezone writes /etc/localtime of the root filesystem, owned by uid and gid (the container's root as seen on the
// host); see ReadTimezone for the name. It replaces a file or link: images link to their own database, whose files must
// not change. The root filesystem is hostile: links are followed with it as "/".
func SetTimezone(rootfs, name string, uid, gid int) error {
	data, err := ReadTimezone(name)
	if data == nil || err != nil {
		return err
	}
	root, err := os.OpenFile(rootfs, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := newDirMaker(root, uid, gid).make("/etc"); err != nil {
		return fmt.Errorf("create /etc: %w", err)
	}
	etc, err := openInRoot(rootfs, "/etc")
	if err != nil {
		return err
	}
	defer etc.Close()
	if err := unix.Unlinkat(int(etc.Fd()), "localtime", 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "replace", Path: "/etc/localtime", Err: err}
	}
	flags := unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(etc.Fd()), "localtime", flags, 0o644)
	if err != nil {
		return &fs.PathError{Op: "create", Path: "/etc/localtime", Err: err}
	}
	f := os.NewFile(uintptr(fd), "/etc/localtime")
	_, err = f.Write(data)
	return errors.Join(err, f.Chown(uid, gid), f.Close())
}
