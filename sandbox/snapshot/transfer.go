package snapshot

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/openat"
	"github.com/podd-project/podd/oci/space"
)

// A checkpoint travels as a few blobs: the manifest, the seal, the signature, and one with all images.

// Blob is a part of a checkpoint that travels.
type Blob struct {
	// Name and MediaType say which part it is.
	Name, MediaType string
	// Write writes the part.
	Write func(w io.Writer) error
}

// ArtifactType is the media type of a checkpoint in a registry.
const ArtifactType = "application/vnd.podd.checkpoint.v1"

const (
	// imagesName is a tar archive of the images, compressed with zstd.
	imagesName = "images.tar.zst"
	typeText   = "text/plain"
	typeJSON   = "application/vnd.podd.checkpoint.manifest.v1+json"
	typeImages = "application/vnd.podd.checkpoint.images.v1.tar+zstd"
)

// Blobs returns the parts of the checkpoint. Images are compared with the manifest while they are written:
// errdefs.ErrDataLoss.
func (s *Snapshot) Blobs(ctx context.Context) ([]Blob, error) {
	dir, err := openDir(s.path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	seal, signature, err := readProofs(dir)
	if err != nil {
		return nil, err
	}
	text := func(name, kind, text string) Blob {
		return Blob{name, kind, func(w io.Writer) error { _, err := io.WriteString(w, text); return err }}
	}
	blobs := []Blob{text(manifestName, typeJSON, string(s.raw))}
	if seal != "" {
		blobs = append(blobs, text(sealName, typeText, seal))
	}
	if signature != "" {
		blobs = append(blobs, text(signatureName, typeText, signature))
	}
	images := func(w io.Writer) error { return s.pack(ctx, w) }
	return append(blobs, Blob{imagesName, typeImages, images}), nil
}

// pack writes the images as a compressed tar archive, in the order of the manifest.
func (s *Snapshot) pack(ctx context.Context, w io.Writer) error {
	images, err := s.openImages()
	if err != nil {
		return err
	}
	defer images.Close()
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	for _, f := range s.Files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Mode: 0o600, Size: f.Size, Format: tar.FormatPAX}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if err := readFile(ctx, images, f, t); err != nil {
			return fmt.Errorf("image %s: %w", f.Name, err)
		}
	}
	return errors.Join(t.Close(), z.Close())
}

// Opener returns a part of a checkpoint, of at most limit bytes; one that is larger is an error. The error of a part
// that there is not is errdefs.ErrNotFound. The reader returns an error instead of io.EOF if the part was changed. A
// part whose name ends in .zst is decompressed: that must not happen in this process.
type Opener func(ctx context.Context, name string, limit int64) (io.ReadCloser, error)

// Receive writes the checkpoint whose parts open returns into the empty directory at path, if it is trusted. After an
// error the directory is empty again. Nothing but the small parts is read before the checkpoint is trusted.
func Receive(ctx context.Context, path string, trust Trust, open Opener) (err error) {
	var small [3]string
	for i, part := range []struct {
		name  string
		limit int64
	}{{manifestName, MaxManifest}, {sealName, maxSeal}, {signatureName, maxSignature}} {
		if small[i], err = receiveText(ctx, open, part.name, part.limit); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	m, err := trust.parse([]byte(small[0]), small[1], small[2])
	if err != nil {
		return err
	}
	w, err := Create(path, m.Kind, "")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Discard())
		}
		err = errors.Join(err, w.Close())
	}()
	if err := space.Check(path, uint64(m.size())); err != nil {
		return err
	}
	images, err := open(ctx, imagesName, m.maxArchive())
	if err != nil {
		return fmt.Errorf("%s: %w", imagesName, err)
	}
	defer images.Close()
	if err := w.unpack(ctx, m.Files, images); err != nil {
		return fmt.Errorf("%s: %w", imagesName, err)
	}
	return w.finish([]byte(small[0]), small[1], small[2])
}

// maxArchive bounds the archive of the images, in bytes, compressed or not: what cannot be becomes a little longer.
func (m Manifest) maxArchive() int64 {
	const perFile, rest = 4 << 10, 1 << 20
	size := m.size()
	return size + size/64 + perFile*int64(len(m.Files)) + rest
}

// receiveText reads a small part, "" for a proof that there is not.
func receiveText(ctx context.Context, open Opener, name string, limit int64) (string, error) {
	r, err := open(ctx, name, limit)
	if errdefs.IsNotFound(err) && name != manifestName {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return string(data), err
}

// unpack writes the images, which must be those of the manifest, in its order and with its sizes and digests.
func (w *Writer) unpack(ctx context.Context, files []File, images io.Reader) error {
	images = reader{ctx, images}
	t := tar.NewReader(images)
	for _, f := range files {
		h, err := t.Next()
		if err != nil {
			return fmt.Errorf("%w: image %.200q is missing: %w", errdefs.ErrDataLoss, f.Name, err)
		}
		if h.Typeflag != tar.TypeReg || h.Name != f.Name || h.Size != f.Size {
			return fmt.Errorf("%w: %.200q of %d bytes is at the place of image %.200q of %d bytes",
				errdefs.ErrDataLoss, h.Name, h.Size, f.Name, f.Size)
		}
		if err := w.unpackFile(f, t); err != nil {
			return fmt.Errorf("image %.200q: %w", f.Name, err)
		}
	}
	_, err := io.Copy(io.Discard, images) // its end says whether it was changed
	return err
}

// unpackFile writes one image, and its directories.
func (w *Writer) unpackFile(f File, content io.Reader) error {
	if err := w.makeDirs(filepath.Dir(f.Name)); err != nil {
		return err
	}
	how := unix.OpenHow{Flags: unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL, Mode: 0o600, Resolve: openat.NoLinks}
	out, err := openat.Open(w.images, f.Name, how)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := f.copy(out, content); err != nil {
		return err
	}
	return out.Sync()
}

func (w *Writer) makeDirs(name string) error {
	root, err := os.OpenRoot(w.imagePath())
	if err != nil {
		return err
	}
	return errors.Join(root.MkdirAll(name, 0o700), root.Close())
}
