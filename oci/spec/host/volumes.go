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

// mkdirAll is os.MkdirAll with root as "/". Each directory is created and chowned in its opened parent, so that no
// symbolic link is followed.
func mkdirAll(root *os.File, path string, uid, gid int) error {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	at, err := openat.Open(root, path, how)
	if err == nil {
		return at.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) || path == "/" {
		return err
	}
	if err := mkdirAll(root, filepath.Dir(path), uid, gid); err != nil {
		return err
	}
	parent, err := openat.Open(root, filepath.Dir(path), how)
	if err != nil {
		return err
	}
	defer parent.Close()
	return makeDirAt(parent, filepath.Base(path), path, uid, gid) // EEXIST: a dangling link
}
