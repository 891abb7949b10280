package layers

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cyphar/filepath-securejoin"
	"github.com/vbatts/tar-split/archive/tar"
	"go.podman.io/storage/pkg/archive"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/openat"
)

// tree writes the entries of a layer's tar below a directory, in the form of overlayfs (Documentation/filesystems/
// overlayfs.rst): a whiteout is a character device 0:0, and a directory that hides those of lower layers has the
// attribute trusted.overlay.opaque.
//
// A tar may have a path twice, and a whiteout of a path that it has too. As the OCI image specification says (layer.md)
// the later entry counts, and a whiteout hides files of lower layers only, wherever in the tar it is.
//
// No name, link or hard link of the tar leads out of the directory.
type tree struct {
	root *os.File
	// keep is a directory for contents of files that a later entry has replaced. It is made when needed.
	keep string
	// replaced has the positions of entries that a later one has replaced, with the file of their content in keep, "" for
	// none.
	replaced map[int]string
	hasRoot  bool
	// parent is the directory at the path name, that of the last entry.
	parent struct {
		*os.File
		name  string
		inode uint64
	}
	// entries are all that are not replaced.
	entries map[entryKey]entry
	dirs    []dirTimes
	buffer  []byte
}

// entryKey is the place of an entry, whatever the links on its path: the inode of its directory and its name.
type entryKey struct {
	dir  uint64
	name string
}

// entry is the position of an entry in the metadata.
type entry struct {
	position   int
	hasContent bool
}

// dirTimes are set when all is written in the directory.
type dirTimes struct {
	name  string
	times [2]unix.Timespec
}

func openTree(root, keep string) (*tree, error) {
	const buffer = 256 << 10
	dir, err := os.OpenFile(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return &tree{
		root: dir, keep: keep, replaced: map[int]string{}, entries: map[entryKey]entry{}, buffer: make([]byte, buffer),
	}, nil
}

func (t *tree) close() {
	t.leave()
	t.root.Close()
}

// add writes the entry at a position of the metadata. It reads all of content.
func (t *tree) add(h *tar.Header, content io.Reader, position int) error {
	if leadsOut(h.Name) {
		return errors.New("the path leads out of the layer")
	}
	if most := int64(math.MaxUint32 - 1); int64(h.Uid) > most || int64(h.Gid) > most || h.Uid < 0 || h.Gid < 0 {
		return fmt.Errorf("the owner %d:%d is not valid", h.Uid, h.Gid) // the kernel takes 2^32-1 for no change
	}
	dir, name := path.Split(path.Clean("/" + h.Name))
	if err := t.enter(dir); err != nil {
		return err
	}
	now := entry{position, h.Typeflag == tar.TypeReg && h.Size > 0 && !isSparse(h)}
	switch {
	case name == "" && h.Typeflag != tar.TypeDir:
		return errors.New("the root of the layer is not a directory")
	case name == "":
		t.hasRoot = true
		t.note(".", now)
		return t.setAttributes(h, ".")
	case isWhiteout(name):
		return t.addWhiteout(h, name, now)
	}
	err := t.create(h, name, content)
	if errors.Is(err, errLinked) {
		t.replaced[position] = "" // the earlier entry counts
		return nil
	}
	if errors.Is(err, fs.ErrExist) {
		err = t.recreate(h, name, content)
	}
	if err != nil {
		return err
	}
	t.note(name, now)
	return t.setAttributes(h, name)
}

// create makes a file, or returns an fs.ErrExist.
func (t *tree) create(h *tar.Header, name string, content io.Reader) error {
	at := int(t.parent.Fd())
	switch h.Typeflag {
	case tar.TypeReg:
		return t.writeFile(name, content)
	case tar.TypeDir:
		return os.NewSyscallError("mkdir", unix.Mkdirat(at, name, 0o700))
	case tar.TypeSymlink:
		return os.NewSyscallError("symlink", unix.Symlinkat(h.Linkname, at, name))
	case tar.TypeLink:
		return t.link(h.Linkname, name)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		kind := map[byte]uint32{tar.TypeChar: unix.S_IFCHR, tar.TypeBlock: unix.S_IFBLK, tar.TypeFifo: unix.S_IFIFO}
		device := unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor))
		return os.NewSyscallError("mknod", unix.Mknodat(at, name, kind[h.Typeflag]|0o600, int(device)))
	}
	return fmt.Errorf("entries of type %q are not supported", h.Typeflag)
}

func (t *tree) writeFile(name string, content io.Reader) error {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(t.parent.Fd()), name, flags, 0o600)
	if err != nil {
		return os.NewSyscallError("open", err)
	}
	file := os.NewFile(uintptr(fd), name)
	_, err = io.CopyBuffer(struct{ io.Writer }{file}, content, t.buffer)
	return errors.Join(err, file.Close())
}

// link makes a hard link. Its target is a path in the layer, and not followed if it is a symbolic link.
func (t *tree) link(target, name string) error {
	if leadsOut(target) {
		return fmt.Errorf("the hard link to %.300q leads out of the layer", target)
	}
	dir, base := path.Split(path.Clean("/" + target))
	from, err := t.open(dir)
	if err != nil {
		return err
	}
	defer from.Close()
	var of unix.Stat_t
	if err := unix.Fstat(int(from.Fd()), &of); err != nil {
		return os.NewSyscallError("stat", err)
	}
	if _, ok := t.entries[entryKey{of.Ino, archive.WhiteoutPrefix + base}]; ok { // its device is not a file
		return &fs.PathError{Op: "link", Path: target, Err: unix.ENOENT}
	}
	err = os.NewSyscallError("link", unix.Linkat(int(from.Fd()), base, int(t.parent.Fd()), name, 0))
	if errors.Is(err, fs.ErrExist) && isSame(from, base, t.parent.File, name) {
		return errLinked
	}
	return err
}

// errLinked is the error of a hard link that exists.
var errLinked = errors.New("the tar has the hard link")

// isSame reports whether two names are one file.
func isSame(dirA *os.File, a string, dirB *os.File, b string) bool {
	var first, second unix.Stat_t
	return unix.Fstatat(int(dirA.Fd()), a, &first, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		unix.Fstatat(int(dirB.Fd()), b, &second, unix.AT_SYMLINK_NOFOLLOW) == nil && first.Ino == second.Ino
}

// leadsOut reports whether a path of a tar leads out of the layer by its words.
func leadsOut(name string) bool {
	clean := path.Clean(name)
	return clean == ".." || strings.HasPrefix(clean, "../")
}

// recreate makes a file in the place of an earlier one of the tar.
func (t *tree) recreate(h *tar.Header, name string, content io.Reader) error {
	old, err := t.stat(name)
	if err != nil {
		return err
	}
	isDir := h.Typeflag == tar.TypeDir
	if isDir && old.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil
	}
	if err := t.remove(name); err != nil {
		return err
	}
	if err := t.create(h, name, content); err != nil {
		return err
	}
	if isDir { // the earlier entry hides a directory of lower layers
		return t.makeOpaque(name)
	}
	return nil
}

// addWhiteout hides a file of lower layers. If this layer has the path too, only a directory needs it: a directory of
// lower layers with this name would show through.
func (t *tree) addWhiteout(h *tar.Header, name string, now entry) error {
	if h.Size > 0 {
		return errors.New("a whiteout has content")
	}
	if name == archive.WhiteoutOpaqueDir {
		t.note(name, now)
		return t.makeOpaque(".")
	}
	hidden := strings.TrimPrefix(name, archive.WhiteoutPrefix)
	if hidden == "" || hidden == "." || hidden == ".." {
		return errors.New("a whiteout names no file")
	}
	t.note(name, now)
	err := unix.Mknodat(int(t.parent.Fd()), hidden, unix.S_IFCHR, 0)
	if err == nil {
		return t.chown(h, hidden)
	}
	if !errors.Is(err, fs.ErrExist) {
		return os.NewSyscallError("mknod", err)
	}
	old, err := t.stat(hidden)
	if err != nil || isWhiteoutDevice(old) {
		return err
	}
	t.supersede(entryKey{t.parent.inode, name}, "")
	if old.Mode&unix.S_IFMT == unix.S_IFDIR {
		return t.makeOpaque(hidden)
	}
	return nil
}

// makeOpaque lets a directory hide those of lower layers.
func (t *tree) makeOpaque(name string) error {
	return os.NewSyscallError("setxattr", unix.Lsetxattr(t.path(name), overlayPrefix+"opaque", []byte("y"), 0))
}

// note records an entry in the place of an earlier one.
func (t *tree) note(name string, now entry) {
	key := entryKey{t.parent.inode, name}
	t.supersede(key, "")
	t.entries[key] = now
}

// supersede forgets an entry, of which the content is in a file of the directory keep.
func (t *tree) supersede(key entryKey, content string) {
	if old, ok := t.entries[key]; ok {
		delete(t.entries, key)
		t.replaced[old.position] = content
	}
}

// remove removes a file, or a directory with all that is in it, but keeps contents that the metadata need.
func (t *tree) remove(name string) error {
	defer func() { t.parent.name = "" }() // a link to the directory may have been removed
	inodes := map[string]uint64{filepath.Dir(t.path(name)): t.parent.inode}
	err := filepath.WalkDir(t.path(name), func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			var st unix.Stat_t
			if err := unix.Lstat(file, &st); err != nil {
				return os.NewSyscallError("stat", err)
			}
			inodes[file] = st.Ino
			t.supersede(entryKey{st.Ino, archive.WhiteoutOpaqueDir}, "")
		}
		return t.keepContent(file, entryKey{inodes[filepath.Dir(file)], d.Name()})
	})
	if err != nil {
		return err
	}
	return os.RemoveAll(t.path(name))
}

// keepContent moves a file that an entry has made to the directory keep if the entry has content.
func (t *tree) keepContent(file string, key entryKey) error {
	t.supersede(entryKey{key.dir, archive.WhiteoutPrefix + key.name}, "")
	old := t.entries[key]
	if !old.hasContent {
		t.supersede(key, "")
		return nil
	}
	if err := os.MkdirAll(t.keep, 0o700); err != nil {
		return err
	}
	kept := filepath.Join(t.keep, strconv.Itoa(old.position))
	t.supersede(key, kept)
	return os.Rename(file, kept)
}

// enter opens the directory of the next entry, and makes it if the tar does not have it.
func (t *tree) enter(name string) error {
	if t.parent.File != nil && t.parent.name == name {
		return nil
	}
	t.leave()
	dir, err := t.open(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		dir, err = t.makeParents(name)
	}
	if err != nil {
		return err
	}
	return t.use(dir, name)
}

// use makes a directory the one of the next entry.
func (t *tree) use(dir *os.File, name string) error {
	t.parent.File, t.parent.name = dir, name
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return os.NewSyscallError("stat", err)
	}
	t.parent.inode = st.Ino
	return nil
}

func (t *tree) leave() {
	if t.parent.File != nil {
		t.parent.Close()
		t.parent.File = nil
	}
}

// open opens a directory. Links on the way are resolved as in a container, and lead to no other place.
func (t *tree) open(name string) (*os.File, error) {
	return openat.Open(t.root, "."+name, unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// makeParents opens a directory whose path does not exist, or has a whiteout in it, and makes the missing parts.
func (t *tree) makeParents(name string) (*os.File, error) {
	resolved, err := securejoin.SecureJoin(t.root.Name(), name) // a link may lead to a directory that does not exist
	if err != nil {
		return nil, err
	}
	missing, err := filepath.Rel(t.root.Name(), resolved)
	if err != nil {
		return nil, err
	}
	dir, err := t.open("/")
	if err != nil {
		return nil, err
	}
	for part := range strings.SplitSeq(missing, "/") {
		if err := t.use(dir, ""); err != nil {
			return nil, err
		}
		if dir, err = t.makeParent(part); err != nil {
			return nil, err
		}
		t.leave()
	}
	return dir, nil
}

// makeParent opens a directory, which may exist.
func (t *tree) makeParent(name string) (*os.File, error) {
	h := &tar.Header{Typeflag: tar.TypeDir, Mode: 0o755}
	err := t.create(h, name, nil)
	if errors.Is(err, fs.ErrExist) {
		old, failed := t.stat(name)
		if failed != nil {
			return nil, failed
		}
		if isWhiteoutDevice(old) {
			err = t.recreate(h, name, nil)
		} else {
			return t.openChild(name)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(t.chown(h, name), t.chmod(h, name)); err != nil {
		return nil, err
	}
	return t.openChild(name)
}

// openChild opens a directory in that of the next entry.
func (t *tree) openChild(name string) (*os.File, error) {
	return openat.Open(t.parent.File, name, unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY, Resolve: openat.NoLinks,
	})
}

// path is one to a file in the directory of the next entry.
func (t *tree) path(name string) string { return openat.Path(t.parent.File) + "/" + name }

// stat looks at a file in that directory.
func (t *tree) stat(name string) (*unix.Stat_t, error) {
	st := &unix.Stat_t{}
	return st, os.NewSyscallError("stat", unix.Fstatat(int(t.parent.Fd()), name, st, unix.AT_SYMLINK_NOFOLLOW))
}

func isWhiteout(name string) bool { return strings.HasPrefix(path.Base(name), archive.WhiteoutPrefix) }

func isWhiteoutDevice(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}
