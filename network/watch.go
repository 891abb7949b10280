package network

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
	"github.com/sirupsen/logrus"
)

// watch reports changes of a directory that may not exist yet: then it watches the nearest ancestor that does. It only
// makes readiness faster. Changes that it misses (no inotify instance left, a directory behind a symbolic link) are
// found at the next interval, when the directory is read anyway.
type watch struct {
	dir   string
	armed string            // the watched path
	fs    *fsnotify.Watcher // nil if nothing is watched
	log   logrus.FieldLogger
}

func newWatch(dir string, log logrus.FieldLogger) *watch {
	w := &watch{dir: filepath.Clean(dir), log: log.WithField("conf_dir", dir)}
	w.arm()
	return w
}

// run calls changed after every change, until ctx ends. Without a watch it returns at once.
func (w *watch) run(ctx context.Context, changed func()) {
	defer w.disarm()
	for w.fs != nil {
		select {
		case e := <-w.fs.Events:
			if w.handle(e) {
				changed()
			}
		case <-w.fs.Errors: // queue overflow: events were lost
			w.disarm()
			w.arm()
			changed()
		case <-ctx.Done():
			return
		}
	}
}

// handle reports whether e may have changed the directory, and moves the watch when directories come or go.
func (w *watch) handle(e fsnotify.Event) bool {
	if e.Name == w.armed && e.Has(fsnotify.Remove|fsnotify.Rename) {
		w.disarm()
	}
	before := w.armed
	w.arm()
	return before != w.armed || w.armed == w.dir && e.Op != fsnotify.Chmod
}

// arm watches the directory, or its nearest ancestor.
func (w *watch) arm() {
	for {
		target := nearest(w.dir)
		if target == w.armed {
			return
		}
		err := w.armAt(target)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted in the meantime
		}
		if err != nil {
			w.log.WithError(err).Warn("failed to watch the CNI configuration, reading it at intervals only")
			return
		}
		// Check again: the directory may have been created before the watch on its ancestor.
	}
}

// armAt watches target and nothing else. Each target has its own watcher: events of a deleted directory would be taken
// for those of another one of the same name.
func (w *watch) armAt(target string) error {
	w.disarm()
	next, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	if err := next.Add(target); err != nil {
		return errors.Join(err, next.Close())
	}
	w.fs, w.armed = next, target
	return nil
}

func (w *watch) disarm() {
	if w.fs != nil {
		_ = w.fs.Close()
	}
	w.fs, w.armed = nil, ""
}

// nearest returns dir, or the closest ancestor of it that is a directory.
func nearest(dir string) string {
	for dir != "/" {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return dir
}
