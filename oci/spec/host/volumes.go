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
	dirs := newDirMaker(root, uid, gid)
	for _, v := range slices.Sorted(maps.Keys(volumes)) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if strings.Contains(v, "\x00") {
			return invalid("the image declares a volume at %q, which contains a NUL byte", v)
		}
		if err := dirs.make(filepath.Join("/", v)); err != nil {
			return fmt.Errorf("create the image's volume %q: %w", v, err)
		}
	}
	return nil
}

// MakeParents creates the directories above paths of the container, mount points for example, where they are missing.
// Runtimes do so, but not all of them below a link without a target, as /var/run often is. They report what cannot be
// made here, or is deeper than podd cares for.
func MakeParents(ctx context.Context, rootfs string, paths []string, uid, gid int) error {
	root, err := os.OpenFile(rootfs, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	dirs := newDirMaker(root, uid, gid)
	for _, path := range paths {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if path = filepath.Join("/", path); strings.Count(path, "/") <= maxTarget {
			_ = dirs.make(filepath.Dir(path))
		}
	}
	return nil
}

// maxLinks is how many links without a target are followed for one container, and maxTarget is how many directories
// such a link may name: the image store bounds only the paths themselves.
const maxLinks, maxTarget = 40, 64

// dirMaker is os.MkdirAll with root as "/", for the paths of one container.
type dirMaker struct {
	root     *os.File
	uid, gid int
	links    int // that may still be followed
}

func newDirMaker(root *os.File, uid, gid int) *dirMaker {
	return &dirMaker{root: root, uid: uid, gid: gid, links: maxLinks}
}

// make creates and chowns each directory in its opened parent, so that no symbolic link is followed by chance. The
// target of a link that has none, such as /var/run in an image without /run, is created first.
func (m *dirMaker) make(path string) error {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	at, err := openat.Open(m.root, path, how)
	if err == nil {
		return at.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) || path == "/" {
		return err
	}
	if err := m.make(filepath.Dir(path)); err != nil {
		return err
	}
	parent, err := openat.Open(m.root, filepath.Dir(path), how)
	if err != nil {
		return err
	}
	defer parent.Close()
	err = makeDirAt(parent, filepath.Base(path), path, m.uid, m.gid)
	if !errors.Is(err, fs.ErrExist) || m.links == 0 {
		return err
	}
	target, err := linkTarget(m.root, parent, filepath.Base(path))
	if err != nil {
		return err
	}
	if strings.Count(target, "/") > maxTarget {
		return invalid("%.100q is a link to more than %d directories that are missing", path, maxTarget)
	}
	m.links--
	if err := m.make(target); err != nil {
		return err
	}
	if at, err = openat.Open(m.root, path, how); err != nil {
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
