package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/openat"
	"github.com/podd-project/podd/oci/space"
)

// Writer is a checkpoint that is being written. Close must be called after Commit or Discard.
type Writer struct {
	kind        string
	staging     string // see Create
	room        int64  // for the images that are moved, see oci.Dumped
	dir, images *os.File
}

// Create opens the directory at path for images of a kind. It must be empty, belong to podd's user and be writable by
// nobody else: errdefs.ErrInvalidArgument.
//
// Unless staging is "", the runtime writes to a new directory of that path, on podd's disk, and Commit moves its
// output: the directory at path may be on a volume whose server dies, and a process that writes to it then, such as
// CRIU with a stopped container, cannot even be killed.
func Create(path, kind, staging string) (*Writer, error) {
	dir, err := openDir(path)
	if err != nil {
		return nil, err
	}
	w := &Writer{kind: kind, dir: dir}
	err = checkOutput(dir)
	if err == nil {
		err = w.makeImages(staging)
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// makeImages makes the directories of the images. After an error none of them is left.
func (w *Writer) makeImages(staging string) error {
	err := unix.Mkdirat(int(w.dir.Fd()), w.kind, 0o700)
	if err == nil {
		w.images, err = openat.Open(w.dir, w.kind, unix.OpenHow{Flags: unix.O_DIRECTORY, Resolve: openat.NoLinks})
		if err == nil && staging != "" {
			err = w.makeStaging(staging)
		}
		if err != nil {
			err = errors.Join(err, w.Discard())
		}
	}
	if err != nil {
		return fmt.Errorf("make a directory for the images: %w", err)
	}
	return nil
}

func (w *Writer) makeStaging(path string) (err error) {
	if w.room, err = space.Half(w.imagePath()); err == nil { // now, when nothing waits for the volume yet
		w.staging, err = path, os.Mkdir(path, 0o700)
	}
	return err
}

// openDir opens a directory that a request names; its last part may not be a symbolic link.
func openDir(path string) (*os.File, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("%w: %w: want an existing directory, not a link", errdefs.ErrInvalidArgument, err)
	case err != nil:
		return nil, fmt.Errorf("open the directory of the checkpoint: %w", err)
	}
	return dir, nil
}

func checkOutput(dir *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return fmt.Errorf("%s: %w", dir.Name(), err)
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("%w: %s is writable by other users than podd's, want mode 0700 and owner %d",
			errdefs.ErrInvalidArgument, dir.Name(), os.Geteuid())
	}
	switch names, err := dir.Readdirnames(1); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	default:
		return fmt.Errorf("%w: %s is not empty, it has %.100q", errdefs.ErrInvalidArgument, dir.Name(), names[0])
	}
}

// ImagePath is a path to the directory where the runtime writes the images. It is valid for other processes, too, while
// w is open.
func (w *Writer) ImagePath() string {
	if w.staging != "" {
		return w.staging
	}
	return w.imagePath()
}

// imagePath is a path to the directory of the images, whatever has become of its name.
func (w *Writer) imagePath() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), w.images.Fd()) }

// Commit makes the directory a checkpoint: it adds the digests of the images to m and writes it, sealed. After an error
// the caller discards the directory.
func (w *Writer) Commit(ctx context.Context, m Manifest, key *Key) error {
	m.Format, m.Kind, m.Files = format, w.kind, nil
	if err := w.moveStaged(ctx); err != nil {
		return fmt.Errorf("move the runtime's output: %w", err)
	}
	names, err := w.list()
	if err == nil {
		err = m.checkNames(names)
	}
	if err != nil {
		return fmt.Errorf("runtime's output: %w", err)
	}
	for _, name := range names {
		f, err := w.finishFile(ctx, name)
		if err != nil {
			return fmt.Errorf("read image: %w", err)
		}
		m.Files = append(m.Files, f)
	}
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode manifest: %w", err)
	}
	if len(data) > MaxManifest {
		return fmt.Errorf("%w: the manifest has %d bytes, at most %d are allowed: the environments are too large",
			errdefs.ErrResourceExhausted, len(data), MaxManifest)
	}
	seal, err := key.seal(data)
	if err != nil {
		return err
	}
	return w.finish(data, seal, "")
}

// finish writes what makes the directory a checkpoint, the manifest last. An empty proof is left out.
func (w *Writer) finish(manifest []byte, seal, signature string) error {
	for _, f := range []struct{ name, text string }{
		{sealName, seal}, {signatureName, signature}, {manifestName, string(manifest)},
	} {
		if f.text == "" {
			continue
		}
		if err := writeFile(w.dir, f.name, []byte(f.text)); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	return errors.Join(w.syncDirs(), w.images.Sync(), w.dir.Sync())
}

// list returns the names of the files that the runtime has written, sorted.
func (w *Writer) list() (names []string, err error) {
	err = w.walk(func(name string, isDir bool) error {
		if !isDir {
			names = append(names, name)
		}
		return nil
	})
	return names, err
}

// syncDirs makes the names of the images durable.
func (w *Writer) syncDirs() error {
	return w.walk(func(name string, isDir bool) error {
		if !isDir {
			return nil
		}
		d, err := openat.Open(w.images, name, unix.OpenHow{Flags: unix.O_DIRECTORY, Resolve: openat.NoLinks})
		if err != nil {
			return err
		}
		return errors.Join(d.Sync(), d.Close())
	})
}

// walk calls f for each entry of the directory of the images, in order, without following links.
func (w *Writer) walk(f func(name string, isDir bool) error) error {
	root, err := os.OpenRoot(w.imagePath())
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		return f(name, d.IsDir())
	})
}

// finishFile makes an image durable and readable by its owner only, and returns its digest.
func (w *Writer) finishFile(ctx context.Context, name string) (File, error) {
	f, err := openFile(w.images, name)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	if err := f.Chmod(0o600); err != nil {
		return File{}, err
	}
	h := sha256.New()
	n, err := io.Copy(h, reader{ctx, f})
	if err != nil {
		return File{}, err
	}
	return File{Name: name, Size: n, SHA256: hex.EncodeToString(h.Sum(nil))}, f.Sync()
}

// writeFile writes a file in dir that appears complete or not at all.
func writeFile(dir *os.File, name string, data []byte) error {
	how := unix.OpenHow{Flags: unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL, Mode: 0o600, Resolve: openat.NoLinks}
	f, err := openat.Open(dir, temporary(name), how)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return unix.Renameat(int(dir.Fd()), temporary(name), int(dir.Fd()), name)
}

func temporary(name string) string { return "." + name }

// Discard removes everything that was written; the directory stays, empty. Podd's own disk comes first: the directory
// may be on a volume that does not answer.
func (w *Writer) Discard() error {
	errs := []error{w.removeStaging()}
	remove := func(name string) {
		if err := unix.Unlinkat(int(w.dir.Fd()), name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove %s: %w", name, err))
		}
	}
	for _, name := range []string{manifestName, sealName, signatureName} {
		remove(name)
		remove(temporary(name))
	}
	if w.images != nil {
		for _, name := range imageFiles() {
			w.truncate(name)
		}
	}
	return errors.Join(errors.Join(errs...), w.removeImages())
}

func (w *Writer) removeImages() error {
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", w.dir.Fd()))
	if err != nil {
		return err
	}
	return errors.Join(root.RemoveAll(w.kind), root.Close())
}

// truncate frees the space of an image: the sandbox may have it open after a failure.
func (w *Writer) truncate(name string) {
	how := unix.OpenHow{Flags: unix.O_WRONLY | unix.O_NONBLOCK, Resolve: openat.NoLinks}
	if f, err := openat.Open(w.images, name, how); err == nil {
		_ = f.Truncate(0)
		f.Close()
	}
}

func (w *Writer) removeStaging() error {
	if w.staging == "" {
		return nil
	}
	return os.RemoveAll(w.staging)
}

// Close closes the directory.
func (w *Writer) Close() error {
	if w.images != nil {
		w.images.Close()
	}
	return w.dir.Close()
}

// reader reads until ctx ends.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
