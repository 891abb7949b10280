package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/openat"
)

// MakeVolumes creates the directories that an image declares as VOLUME in the container's root filesystem, owned by uid
// and gid (the container's root as seen on the host). Existing directories are not changed.
//
// podd creates no anonymous volumes: Kubernetes has its own volumes and could neither see nor delete these. Paths and
// root filesystem are hostile; symbolic links are followed with the root filesystem as "/" (CVE-2022-23648). A relative
// path is below "/". The image store bounds the number of volumes and their depth; if ctx ends, the directories made so
// far are removed with the root filesystem.
func MakeVolumes(ctx context.Context, rootfs string, volumes map[string]struct{}, uid, gid int) error {
	root, err := os.OpenFile(rootfs, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, v := range slices.Sorted(maps.Keys(volumes)) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if strings.Contains(v, "\x00") {
			return invalid("the image declares a volume at %q, which contains a NUL byte", v)
		}
		if err := mkdirAll(root, filepath.Join("/", v), uid, gid); err != nil {
			return fmt.Errorf("create the image's volume %q: %w", v, err)
		}
	}
	return nil
}

// maxLinks is how many links without a target a path may have, as the kernel's MAXSYMLINKS.
const maxLinks = 40

// mkdirAll is os.MkdirAll with root as "/". Each directory is created and chowned in its opened parent, so that no
// symbolic link is followed by chance. The target of a link that has none, such as /var/run in an image without /run,
// is created first.
func mkdirAll(root *os.File, path string, uid, gid int) error {
	return mkdirBelowLinks(root, path, uid, gid, maxLinks)
}

func mkdirBelowLinks(root *os.File, path string, uid, gid, links int) error {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	at, err := openat.Open(root, path, how)
	if err == nil {
		return at.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) || path == "/" {
		return err
	}
	if err := mkdirBelowLinks(root, filepath.Dir(path), uid, gid, links); err != nil {
		return err
	}
	parent, err := openat.Open(root, filepath.Dir(path), how)
	if err != nil {
		return err
	}
	defer parent.Close()
	err = makeDirAt(parent, filepath.Base(path), path, uid, gid)
	if !errors.Is(err, fs.ErrExist) || links == 0 {
		return err
	}
	target, err := linkTarget(root, parent, filepath.Base(path))
	if err != nil {
		return err
	}
	if err := mkdirBelowLinks(root, target, uid, gid, links-1); err != nil {
		return err
	}
	if at, err = openat.Open(root, path, how); err != nil {
		return err
	}
	return at.Close()
}

// linkTarget returns where a link in the directory dir leads, as a path below root.
func linkTarget(root, dir *os.File, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(dir.Fd()), name, buf)
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	target := string(buf[:n])
	if filepath.IsAbs(target) {
		return filepath.Clean(target), nil
	}
	// The path by which dir was reached may have links itself.
	top, errTop := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", root.Fd()))
	below, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err := errors.Join(errTop, err); err != nil {
		return "", err
	}
	return filepath.Join("/", strings.TrimPrefix(below, top), target), nil
}
