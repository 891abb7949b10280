package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/image/registry"
	"github.com/podd-project/podd/image/worker"
)

// Load loads the images in Config.PreloadDir and pins them, for nodes without a registry. It reads OCI layouts
// (directories), OCI archives and docker archives (tar, also compressed). The signature policy is not applied: write
// access to that directory decides what runs on the node. A file that cannot be loaded is logged and skipped; a file
// that has not changed since the last time costs one stat. Images whose file is gone stay, but are no longer pinned.
func (s *Store) Load(ctx context.Context) error {
	if s.cfg().PreloadDir == "" {
		return nil
	}
	entries, err := os.ReadDir(s.cfg().PreloadDir)
	if errors.Is(err, fs.ErrNotExist) {
		entries, err = nil, nil
	}
	if err != nil {
		return fmt.Errorf("preload images: %w", err)
	}
	s.preloaded.begin(s.index.Load().byID)
	defer s.preloaded.end()
	files, err := s.loadEntries(ctx, entries)
	if err != nil {
		return fmt.Errorf("preload images: %w", err)
	}
	if s.preloaded.replace(files) {
		if err := s.preloaded.save(); err != nil {
			s.log.WithError(err).Warn("failed to record preloaded images, they will be loaded again")
		}
	}
	return s.refresh() // pinned images may have changed
}

// loadEntries loads the files of the preload directory and returns those that could be loaded.
func (s *Store) loadEntries(ctx context.Context, entries []fs.DirEntry) (map[string]preloadedEntry, error) {
	files := map[string]preloadedEntry{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		path := filepath.Join(s.cfg().PreloadDir, e.Name())
		loaded, err := s.loadIfChanged(ctx, path)
		if err != nil {
			s.log.WithError(err).WithField("path", path).Warn("failed to preload image, skipping the file")
			continue
		}
		files[path] = loaded
	}
	return files, nil
}

// loadIfChanged loads a file unless it is unchanged and its images are still in the store.
func (s *Store) loadIfChanged(ctx context.Context, path string) (preloadedEntry, error) {
	stamp, err := fileStamp(path)
	if err != nil {
		return preloadedEntry{}, err
	}
	if old, ok := s.preloaded.file(path); ok && old.Stamp == stamp && s.index.Load().hasAll(old.Images) {
		return old, nil
	}
	start := time.Now()
	images, err := s.loadFile(ctx, worker.Job{Load: path}) // pods wait for these
	if err != nil {
		return preloadedEntry{}, err
	}
	s.log.WithFields(logrus.Fields{
		"path": path, "images": len(images), "duration": time.Since(start).Round(time.Millisecond).String(),
	}).Info("preloaded images")
	return preloadedEntry{Stamp: stamp, Images: images}, nil
}

// fileStamp returns a string that changes when the file, or the index of the layout, does.
func fileStamp(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.IsDir() {
		if info, err = os.Stat(filepath.Join(path, v1.ImageIndexFile)); err != nil {
			return "", fmt.Errorf("not an OCI layout: %w", err)
		}
	}
	return registry.Stamp(info), nil
}
