package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/podd-project/podd/image/child"
	"github.com/podd-project/podd/image/worker"

	"github.com/containerd/errdefs"
	"go.podman.io/image/v5/docker/reference"
)

// LoadFile loads all images of an OCI layout, an OCI archive or a docker archive (tar, also compressed). It is read,
// decompressed and unpacked in a process like that of a pull, with its limits and without network. They are not pinned.
// As for Load, the signature policy is not applied: the caller decides what runs on the node. Pulls has the progress.
// If an image of several fails, others may be loaded.
//
// Errors: errdefs.ErrInvalidArgument for a relative path and a file that is not an archive or has no image for this
// node; errdefs.ErrResourceExhausted for one that exceeds the limits of Config, or the disk.
func (s *Store) LoadFile(ctx context.Context, path string) ([]*Image, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("load %q: not an absolute path: %w", path, errdefs.ErrInvalidArgument)
	}
	start := time.Now()
	ids, err := s.loadFile(ctx, worker.Job{Load: path, Idle: child.CanBeIdle() && isLarge(path)})
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", path, err)
	}
	ix := s.index.Load()
	var images []*Image
	for _, id := range ids {
		if e := ix.byID[id]; e != nil { // it may have been removed
			images = append(images, e.Image)
		}
	}
	s.log.WithField("path", path).WithField("images", len(images)).
		WithField("duration", time.Since(start).Round(time.Millisecond).String()).Info("loaded images")
	return images, nil
}

// loadFile makes a pull's process copy all images of the job's file into storage, and makes them visible. It returns
// the ids of those that were loaded, also with an error.
func (s *Store) loadFile(ctx context.Context, job worker.Job) (ids []string, err error) {
	if err := checkLoadable(job.Load); err != nil {
		return nil, err
	}
	c, err := s.cfg().WithoutRegistry(s.layout.Temp())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	p := newProgress(job.Load)
	defer s.pulls.track(p)()
	job.Corrupt = s.integrity.CorruptIDs()
	result, err := s.runWorker(ctx, job, c, p)
	for _, image := range result.Loaded {
		if failed := s.registerLoaded(ctx, image, c.Dir); failed != nil {
			err = errors.Join(err, fmt.Errorf("image %.100q: %w", image.ID, failed))
			continue
		}
		ids = append(ids, image.ID)
	}
	if errdefs.IsResourceExhausted(err) {
		err = errors.Join(err, s.removeUnused(time.Now(), 1))
	}
	return ids, err
}

// checkLoadable returns an error if path cannot be an image archive or a layout.
func checkLoadable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	case !info.IsDir() && !info.Mode().IsRegular():
		return fmt.Errorf("neither a directory nor a regular file: %w", errdefs.ErrInvalidArgument)
	case strings.Contains(path, "\n"):
		return fmt.Errorf("the path contains a newline: %w", errdefs.ErrInvalidArgument)
	}
	return nil
}

// registerLoaded makes an image visible that a process has copied from a file. Corrupt layers of it, which the process
// has read again, are in dir.
func (s *Store) registerLoaded(ctx context.Context, image worker.Loaded, dir string) error {
	var names []reference.Named
	for _, text := range image.Names {
		name, err := reference.ParseNamed(text)
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	stored, err := s.storage.Image(image.ID)
	if err != nil {
		return fmt.Errorf("look up the image: %w", err)
	}
	if err := s.repair(ctx, stored, dir); err != nil {
		return err
	}
	if _, err := s.register(stored, names...); err != nil {
		return err
	}
	for _, name := range names {
		s.pulls.forget(name.String(), reference.FamiliarString(name))
	}
	return markLoaded(s.storage, stored.ID)
}

// LoadFrom loads all images of an archive as LoadFile does. It writes the archive to a temporary file first, as it is
// read twice. Errors: also errdefs.ErrInvalidArgument for more than Config.MaxImageBytes.
func (s *Store) LoadFrom(ctx context.Context, archive io.Reader) ([]*Image, error) {
	dir, err := os.MkdirTemp(s.layout.Temp(), "load-") // removed by the next start, if podd is killed
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

// largeArchive is the size in bytes from which a load gives way to pods. A smaller one takes a few seconds.
const largeArchive = 64 << 20

// isLarge reports whether a file, or the blobs of a layout, have at least largeArchive bytes. If they cannot be read,
// the load will say so.
func isLarge(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return err == nil && info.Size() >= largeArchive
	}
	blobs, err := filepath.Glob(filepath.Join(path, v1.ImageBlobsDir, "*", "*"))
	if err != nil { // the path is not a pattern
		return false
	}
	var size int64
	for _, blob := range blobs {
		if info, err := os.Lstat(blob); err == nil {
			size += info.Size()
		}
	}
	return size >= largeArchive
}
