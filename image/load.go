package image

import (
	"context"
	"fmt"
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
