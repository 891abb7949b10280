package network

import (
	"context"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
	"github.com/sirupsen/logrus"
)

// watch tells when a directory changes that may not exist yet: then it watches the nearest ancestor that does. It is
// only there to be quick. What it misses (no inotify left, a directory behind a symbolic link) is seen at the next
// interval, because the directory is read then, too.
type watch struct {
	dir   string
	armed string // what is watched now
	fs    *fsnotify.Watcher
	log   logrus.FieldLogger
}

func newWatch(dir string, log logrus.FieldLogger) *watch {
	w := &watch{dir: filepath.Clean(dir), log: log.WithField("confDir", dir)}
	var err error
	if w.fs, err = fsnotify.NewWatcher(); err != nil {
		w.log.WithError(err).Warn("cannot watch the CNI configuration, it is read at intervals only")
		return w
	}
	w.arm()
	return w
}

// run calls changed after every change, until the end of ctx.
func (w *watch) run(ctx context.Context, changed func()) {
	if w.fs == nil {
		return
	}
	defer w.fs.Close()
	for {
		select {
		case e, ok := <-w.fs.Events:
			if !ok {
				return
			}
			if w.handle(e) {
				changed()
			}
		case _, ok := <-w.fs.Errors: // the queue has overflowed: there are events that we did not get
			if !ok {
				return
			}
			w.armed = ""
			w.arm()
			changed()
		case <-ctx.Done():
			return
		}
	}
}

// handle says whether e may have changed the directory, and moves the watch when directories come or go.
func (w *watch) handle(e fsnotify.Event) bool {
	if e.Name == w.armed && e.Has(fsnotify.Remove|fsnotify.Rename) {
		w.armed = "" // the kernel drops the watch with the directory
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
		if w.armed != "" {
			_ = w.fs.Remove(w.armed)
		}
		w.armed = target
		if err := w.fs.Add(target); err != nil {
			w.log.WithError(err).Warn("cannot watch the CNI configuration, it is read at intervals only")
			return
		}
		// Once more: the directory may have appeared before the watch on its ancestor was there.
	}
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
