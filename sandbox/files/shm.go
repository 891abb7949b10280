package files

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// maxShmFiles bounds the files and directories of /dev/shm in a checkpoint, maxShmDepth how deep they are, and
	// maxShmName their names with those of the directories, in bytes.
	maxShmFiles = 10_000
	maxShmDepth = 64
	maxShmName  = unix.PathMax
	// shmModes are the bits of a mode that are kept, of a directory also S_ISGID.
	shmModes = 0o1777
	// shmMode is the mode of /dev/shm itself.
	shmMode = 0o1777
)

// ShmFile returns the name of a file in /dev/shm of a pod, "" if there is none.
func (f Files) ShmFile(pod string, config *cri.PodSandboxConfig) (string, error) {
	dir, err := os.Open(f.Paths(pod, config).Shm)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(1)
	if len(names) == 0 {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return "", err
	}
	return names[0], nil
}

// ShmUnused reports whether /dev/shm of a pod is as Write has made it, or the node's: a checkpoint needs no archive.
func (f Files) ShmUnused(pod string, config *cri.PodSandboxConfig) (bool, error) {
	if usesNodeShm(config) {
		return true, nil
	}
	name, err := f.ShmFile(pod, config)
	if name != "" || err != nil {
		return false, err
	}
	info, err := os.Stat(f.Paths(pod, config).Shm)
	return err == nil && !changedShm(info), err
}

// changedShm reports whether containers have changed the owner or mode of the directory /dev/shm itself.
func changedShm(dir fs.FileInfo) bool {
	st, ok := dir.Sys().(*syscall.Stat_t)
	return !ok || st.Mode&0o7777 != shmMode || st.Uid != 0 || st.Gid != 0
}

// CheckShm returns the error of SaveShm as far as names and kinds of files tell it, without reading their content.
func (f Files) CheckShm(ctx context.Context, pod string, config *cri.PodSandboxConfig) error {
	if usesNodeShm(config) {
		return nil // the pod has none
	}
	return f.walkShm(ctx, pod, func(*os.Root, string) error { return nil })
}

// SaveShm writes the contents of a pod's /dev/shm as a tar archive: files and directories with owners, modes and times.
// Anything else is errdefs.ErrFailedPrecondition. Containers may change the directory concurrently, and put links into
// it.
func (f Files) SaveShm(ctx context.Context, pod string, w io.Writer) error {
	t := tar.NewWriter(w)
	err := f.walkShm(ctx, pod, func(root *os.Root, name string) error { return saveShmFile(ctx, t, root, name) })
	if err != nil {
		return err
	}
	return t.Close()
}

// walkShm calls visit for each file and directory, a directory before its contents; for /dev/shm itself, as ".", only
// if it was changed.
func (f Files) walkShm(ctx context.Context, pod string, visit func(root *os.Root, name string) error) error {
	root, err := os.OpenRoot(f.shm(pod))
	if err != nil {
		return err
	}
	defer root.Close()
	w := shmWalk{ctx: ctx, root: root, left: maxShmFiles, visit: visit}
	info, err := root.Stat(".")
	if err == nil && changedShm(info) {
		err = visit(root, ".")
	}
	if err == nil {
		err = w.dir(".")
	}
	if err != nil {
		return fmt.Errorf("save /dev/shm: %w", err)
	}
	return nil
}

// shmWalk is one call of walkShm.
type shmWalk struct {
	ctx   context.Context
	root  *os.Root
	left  int // files and directories
	visit func(root *os.Root, name string) error
}

// dir visits the contents of a directory. Files that a container removes concurrently are left out.
func (w *shmWalk) dir(dir string) error {
	names, err := w.names(dir)
	for _, name := range names {
		if err = w.file(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err != nil {
			break
		}
	}
	return err
}

func (w *shmWalk) file(name string) error {
	if err := errors.Join(context.Cause(w.ctx), checkShmName(name)); err != nil {
		return err
	}
	info, err := w.root.Lstat(name)
	if err != nil {
		return err
	}
	if !savesShm(info) {
		return unsavedShm(name)
	}
	if err := w.visit(w.root, name); err != nil || !info.IsDir() {
		return err
	}
	return w.dir(name)
}

// names lists a directory, which may have any number of files, up to the remaining limit.
func (w *shmWalk) names(dir string) ([]string, error) {
	d, err := w.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(w.left + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if w.left -= len(names); w.left < 0 {
		return nil, fmt.Errorf("%w: more than %d files", errdefs.ErrResourceExhausted, maxShmFiles)
	}
	return names, nil
}

func checkShmName(name string) error {
	if strings.Count(name, "/") >= maxShmDepth || len(name) > maxShmName {
		return fmt.Errorf("%w: %.100q... is more than %d directories deep, or its path longer than %d bytes",
			errdefs.ErrFailedPrecondition, name, maxShmDepth, maxShmName)
	}
	return nil
}

// savesShm reports whether it is a directory, or a file with one name.
func savesShm(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (info.IsDir() || info.Mode().IsRegular() && st.Nlink == 1)
}

func saveShmFile(ctx context.Context, t *tar.Writer, root *os.Root, name string) error {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat() // it may have been replaced
	if err != nil {
		return err
	}
	if !savesShm(info) {
		return unsavedShm(name)
	}
	st := info.Sys().(*syscall.Stat_t)
	h := &tar.Header{
		Typeflag: tar.TypeDir, Name: name, Mode: int64(st.Mode & shmModes), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: info.ModTime(), Format: tar.FormatPAX,
	}
	if !info.IsDir() {
		h.Typeflag, h.Size = tar.TypeReg, info.Size()
	} else {
		h.Mode |= int64(st.Mode & unix.S_ISGID)
	}
	if err := t.WriteHeader(h); err != nil || info.IsDir() {
		return err
	}
	if _, err = io.CopyN(t, shmReader{ctx, f}, h.Size); errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: %.100q was truncated during the save by a container that is not saved",
			errdefs.ErrFailedPrecondition, name)
	}
	return err
}

// shmReader reads until ctx ends: a file with holes can be of any size.
type shmReader struct {
	ctx context.Context
	r   io.Reader
}

func (r shmReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

func unsavedShm(name string) error {
	return fmt.Errorf("%w: %.100q is not a directory, nor a file with one name", errdefs.ErrFailedPrecondition, name)
}

// RestoreShm makes the files of such an archive, of size bytes, in /dev/shm of a pod, none of whose containers runs.
func (f Files) RestoreShm(ctx context.Context, pod string, archive io.Reader, size int64) error {
	root, err := os.OpenRoot(f.shm(pod))
	if err != nil {
		return err
	}
	defer root.Close()
	r := shmRestore{root: root, files: maxShmFiles + 1, bytes: size} // with /dev/shm itself
	if err := r.all(ctx, tar.NewReader(archive)); err != nil {
		return fmt.Errorf("restore /dev/shm: %w", err)
	}
	return nil
}

// shmRestore is one call of RestoreShm.
type shmRestore struct {
	root  *os.Root
	files int   // that may follow
	bytes int64 // that may follow
	dirs  []shmDir
}

// shmDir is a directory that was made.
type shmDir struct {
	name     string
	modified time.Time
}

func (r *shmRestore) all(ctx context.Context, t *tar.Reader) error {
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return r.setTimes()
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			err = r.file(h, shmReader{ctx, t})
		}
		if err != nil {
			return err
		}
	}
}

// setTimes sets the times of directories, which change while files are made in them.
func (r *shmRestore) setTimes() error {
	var errs []error
	for _, d := range r.dirs {
		errs = append(errs, r.root.Chtimes(d.name, time.Time{}, d.modified))
	}
	return errors.Join(errs...)
}

// check enforces the limits on the archive. Its headers could describe files with holes, larger than itself.
func (r *shmRestore) check(name string, size int64) error {
	if r.files--; r.files < 0 {
		return fmt.Errorf("%w: more than %d files", errdefs.ErrFailedPrecondition, maxShmFiles)
	}
	if size > r.bytes {
		return fmt.Errorf("%w: %.100q has %d bytes, which the archive cannot have", errdefs.ErrFailedPrecondition, name, size)
	}
	r.bytes -= size
	return checkShmName(name)
}

// file makes one file. root refuses names that lead out of it; a directory comes before its contents.
func (r *shmRestore) file(h *tar.Header, content io.Reader) error {
	name := filepath.Clean(h.Name)
	err := r.check(name, h.Size)
	if err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if name != "." {
			err = r.root.Mkdir(name, 0o700)
		}
		r.dirs = append(r.dirs, shmDir{name, h.ModTime})
	case tar.TypeReg:
		err = writeShmFile(r.root, name, h.Size, content)
	default:
		return unsavedShm(name)
	}
	if errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("%w: %.100q does not fit, /dev/shm of the pod is too small", errdefs.ErrResourceExhausted, name)
	}
	if err != nil {
		return err
	}
	return errors.Join(r.root.Lchown(name, h.Uid, h.Gid), r.root.Chmod(name, fileMode(h)),
		r.root.Chtimes(name, time.Time{}, h.ModTime))
}

func fileMode(h *tar.Header) os.FileMode {
	keep := os.ModePerm | os.ModeSticky
	if h.Typeflag == tar.TypeDir {
		keep |= os.ModeSetgid
	}
	return h.FileInfo().Mode() & keep
}

// writeShmFile writes a new file. Pages of zeros become holes: a file can be larger than the memory for /dev/shm.
func writeShmFile(root *os.Root, name string, size int64, content io.Reader) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	page, zeros := make([]byte, 4096), make([]byte, 4096)
	for at := int64(0); at < size; {
		n, err := io.ReadFull(content, page[:min(size-at, int64(len(page)))])
		if err != nil {
			return err
		}
		if !bytes.Equal(page[:n], zeros[:n]) {
			if _, err := f.WriteAt(page[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
	}
	return f.Truncate(size)
}
