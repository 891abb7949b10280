package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/openat"
	"github.com/podd-project/podd/oci/space"
)

// Snapshot is a checkpoint whose manifest has been read and verified. Its images are verified by Stage.
type Snapshot struct {
	Manifest
	// Digest is the sha256 hex of the manifest, which identifies the checkpoint.
	Digest string
	path   string
	// raw is the manifest as it is in the directory.
	raw []byte
}

// Open reads the manifest of the checkpoint in the directory at path. It returns errdefs.ErrInvalidArgument if there is
// no checkpoint, errdefs.ErrPermissionDenied for one that is not trusted, and errdefs.ErrFailedPrecondition for a
// manifest that this podd cannot restore.
func Open(path string, trust Trust) (*Snapshot, error) {
	dir, err := openDir(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	data, err := readManifest(dir)
	if err != nil {
		return nil, err
	}
	seal, signature, err := readProofs(dir)
	if err != nil {
		return nil, err
	}
	m, err := trust.parse(data, seal, signature)
	if err != nil {
		return nil, err
	}
	return newSnapshot(m, data, path), nil
}

// parse returns the content of a manifest that is trusted.
func (t Trust) parse(data []byte, seal, signature string) (Manifest, error) {
	untrusted := t.verify(data, seal, signature)
	if untrusted != nil && !t.Foreign {
		return Manifest{}, untrusted
	}
	m, err := parseManifest(data)
	if err != nil {
		return Manifest{}, err
	}
	if untrusted != nil && m.Kind != KindGVisor {
		return Manifest{}, untrusted
	}
	return m, nil
}

// Inspect is Open for callers that only print a checkpoint's manifest: no seal is verified.
func Inspect(path string) (*Snapshot, error) {
	dir, err := openDir(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	data, err := readManifest(dir)
	if err != nil {
		return nil, err
	}
	m, err := parseManifest(data)
	return newSnapshot(m, data, path), err
}

func newSnapshot(m Manifest, data []byte, path string) *Snapshot {
	digest := sha256.Sum256(data)
	return &Snapshot{Manifest: m, Digest: hex.EncodeToString(digest[:]), path: path, raw: data}
}

func readManifest(dir *os.File) ([]byte, error) {
	data, err := readSmall(dir, manifestName, MaxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s has no %s: it is not a complete checkpoint",
			errdefs.ErrInvalidArgument, dir.Name(), manifestName)
	}
	if err != nil {
		return nil, fmt.Errorf("read the manifest of the checkpoint: %w", err)
	}
	return data, nil
}

// parseManifest decodes a manifest. A field that this podd does not know is refused: it may restrict how the checkpoint
// can be restored.
func parseManifest(data []byte) (Manifest, error) {
	var m Manifest
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return Manifest{}, fmt.Errorf("%w: manifest of the checkpoint: %w", errdefs.ErrFailedPrecondition, err)
	}
	return m, m.check()
}

// Stage copies the images into the new directory to, and verifies them. Its output stays after an error:
// errdefs.ErrDataLoss for an image that differs from the manifest.
func (s *Snapshot) Stage(ctx context.Context, to string) error {
	images, err := s.openImages()
	if err != nil {
		return err
	}
	defer images.Close()
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	if err := space.Check(to, uint64(s.size())); err != nil {
		return err
	}
	for _, f := range s.Files {
		if err := os.MkdirAll(filepath.Join(to, filepath.Dir(f.Name)), 0o700); err != nil {
			return err
		}
		if err := copyFile(ctx, images, f, filepath.Join(to, f.Name)); err != nil {
			return fmt.Errorf("copy image %s: %w", f.Name, err)
		}
	}
	return nil
}

// restoreRate is how many bytes of images a runtime restores in a second, at the very least: a busy disk.
const restoreRate = 20 << 20

// RestoreTime returns how much longer than another start the restore of staged images may take.
func RestoreTime(staged string) (d time.Duration) {
	var size int64
	_ = filepath.WalkDir(staged, func(_ string, e fs.DirEntry, err error) error { // missing files add nothing
		if err == nil {
			if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
				size += info.Size()
			}
		}
		return nil
	})
	return restoreTime(size)
}

// RestoreTime is the same for images that were not staged yet.
func (m Manifest) RestoreTime() time.Duration { return restoreTime(m.size()) }

func restoreTime(size int64) time.Duration { return time.Duration(size/restoreRate) * time.Second }

// Verify reads the images: errdefs.ErrDataLoss for one that differs from the manifest.
func (s *Snapshot) Verify(ctx context.Context) error {
	images, err := s.openImages()
	if err != nil {
		return err
	}
	defer images.Close()
	for _, f := range s.Files {
		if err := readFile(ctx, images, f, io.Discard); err != nil {
			return fmt.Errorf("image %s: %w", f.Name, err)
		}
	}
	return nil
}

func (s *Snapshot) openImages() (*os.File, error) {
	dir, err := openDir(s.path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	images, err := openat.Open(dir, s.Kind, unix.OpenHow{Flags: unix.O_DIRECTORY, Resolve: openat.NoLinks})
	if err != nil {
		return nil, fmt.Errorf("open the images of the checkpoint: %w", err)
	}
	return images, nil
}

func copyFile(ctx context.Context, images *os.File, want File, to string) error {
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = readFile(ctx, images, want, out)
	return errors.Join(err, out.Close())
}

// readFile copies an image to out, and compares it with the manifest.
func readFile(ctx context.Context, images *os.File, want File, out io.Writer) error {
	from, err := openFile(images, want.Name)
	if err != nil {
		return err
	}
	defer from.Close()
	return want.copy(out, reader{ctx, from})
}

// copy copies the image, and compares it with the manifest.
func (f File) copy(to io.Writer, from io.Reader) error {
	h := sha256.New()
	// One byte more shows that a file is longer.
	n, err := io.Copy(io.MultiWriter(to, h), io.LimitReader(from, f.Size+1))
	if err != nil {
		return err
	}
	if n != f.Size || hex.EncodeToString(h.Sum(nil)) != f.SHA256 {
		return fmt.Errorf("%w: it differs from the manifest: it was damaged or changed after the checkpoint",
			errdefs.ErrDataLoss)
	}
	return nil
}

// openFile opens a regular file in dir.
func openFile(dir *os.File, name string) (*os.File, error) {
	// Without O_NONBLOCK a FIFO would block.
	f, err := openat.Open(dir, name, unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK, Resolve: openat.NoLinks})
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%w: %s is a symbolic link, want a regular file", errdefs.ErrInvalidArgument, name)
	}
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%w: %s is not a regular file", errdefs.ErrInvalidArgument, name)
	}
	return f, nil
}

// readSmall reads a file of at most limit bytes in dir.
func readSmall(dir *os.File, name string, limit int64) ([]byte, error) {
	f, err := openFile(dir, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%w: %s has more than %d bytes", errdefs.ErrInvalidArgument, name, limit)
	}
	return data, err
}
