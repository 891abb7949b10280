package image

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
)

// LoadFile loads all images of an OCI layout, an OCI archive or a docker archive (tar, also compressed). They are not
// pinned. As for Load, the signature policy is not applied: the caller decides what runs on the node. Pulls has the
// progress. If an image of several fails, others may be loaded.
//
// Errors: errdefs.ErrInvalidArgument for a relative path and a file that is no archive or has no image for this node.
func (s *Store) LoadFile(ctx context.Context, path string) ([]*Image, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("load %q: not an absolute path: %w", path, errdefs.ErrInvalidArgument)
	}
	start := time.Now()
	ids, err := s.loadFile(ctx, path)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, fmt.Errorf("load %s: %w", path, cause)
	}
	if err != nil {
		return nil, fmt.Errorf("load %s: %w: %w", path, err, errdefs.ErrInvalidArgument)
	}
	ix := s.index.Load()
	var images []*Image
	for _, id := range ids {
		if e := ix.byID[id]; e != nil { // it may have been removed meanwhile
			images = append(images, e.Image)
		}
	}
	s.log.WithField("path", path).WithField("images", len(images)).
		WithField("duration", time.Since(start).Round(time.Millisecond).String()).Info("loaded images")
	return images, nil
}

// LoadFrom loads all images of an archive as LoadFile does. It writes the archive to a temporary file first, as it is
// read twice. Errors: also errdefs.ErrInvalidArgument for more than Config.MaxImageBytes.
func (s *Store) LoadFrom(ctx context.Context, archive io.Reader) ([]*Image, error) {
	dir, err := os.MkdirTemp(filepath.Join(s.cfg().Root, tempDir), "load-") // removed by the next start, if podd is killed
	if err != nil {
		return nil, fmt.Errorf("load an archive: %w", err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "stdin") // an image without a name is named after the file
	if err := writeAtMost(path, archive, s.cfg().MaxImageBytes); err != nil {
		return nil, fmt.Errorf("load an archive: %w", err)
	}
	return s.LoadFile(ctx, path)
}

// writeAtMost copies r into a new file, or fails if it has more than most bytes.
func writeAtMost(path string, r io.Reader, most int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(f, io.LimitReader(r, most+1))
	if err == nil && n > most {
		err = fmt.Errorf("%w: it has more than %d bytes (max_image_bytes)", errdefs.ErrInvalidArgument, most)
	}
	return err
}
