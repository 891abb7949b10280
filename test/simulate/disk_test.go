package simulate

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/sandbox/record"
)

// disk is the disk of the records: it is full or broken at times, slow where the engine may wait, and loses what is not
// synced with the power. What checkpoint syncs, and in which order, its own tests say; disk believes it.
type disk struct {
	w  *world
	mu sync.Mutex
	// fault is the error of all writes, nil while the disk is well.
	fault error
	// files have contents that are not synced, by path; dirs are directories of records that are not.
	files map[string]*file
	dirs  map[string]bool
	// stale are the ids of those whose last status the disk did not take.
	stale map[string]bool
	// refused are the ids of all those that were ever stale, lost those of which the power failed then.
	refused, lost map[string]bool
}

// file has what a power loss may leave of a file: one of the earlier contents, the oldest of which is on the disk. A
// file without contents may be absent.
type file struct{ contents [][]byte }

// records is the disk as one podd sees it.
type records struct {
	checkpoint.Files
	d *disk
	c *calls
}

var _ checkpoint.Disk = records{}

// enter counts a call of the disk, which may be slow, and returns its error.
func (r records) enter(verb, path string, slow bool) error {
	what := verb + " " + r.d.w.nameIn(path)
	roll := r.d.w.roll(what)
	if slow {
		timer := time.NewTimer(r.c.takes(roll, r.d.w.may("slow"))%(30*time.Second) + jitter(roll))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.c.dead:
		}
	}
	r.c.burn(roll, what)
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	if r.d.fault != nil {
		r.d.w.log("disk: %s: %v", what, r.d.fault)
		return fmt.Errorf("%s: %w", verb, r.d.fault)
	}
	return nil
}

// burn is calls.burn for a point within a call, where podd is likelier to be killed.
func (r records) burn(what string) {
	what = r.d.w.rename(what)
	roll := r.d.w.roll(what)
	for range 8 {
		r.c.burn(roll, what)
	}
}

func (r records) Create(parent, name string, fill func(dir string) error) error {
	dir := filepath.Join(parent, name)
	r.d.w.christenRecord(dir, fill)
	if err := r.enter("create record", dir, true); err != nil {
		return err
	}
	if err := r.Files.Create(parent, name, fill); err != nil {
		return err
	}
	r.d.mu.Lock()
	r.d.dirs[dir] = true
	r.d.mu.Unlock()
	r.d.w.log("disk: created %s", name)
	r.burn("the end of the creation of " + name)
	return nil
}

// Commit does not end its goroutine when podd is killed: record.Sync would report that it had succeeded.
func (r records) Commit(path, final string) error {
	dir := filepath.Dir(path)
	roll := r.d.w.roll("commit " + r.d.w.nameIn(path))
	timer := time.NewTimer(r.c.takes(roll, r.d.w.may("slow"))%(30*time.Second) + jitter(roll))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.c.dead:
		return errInjected
	}
	r.d.mu.Lock()
	fault := r.d.fault
	r.d.mu.Unlock()
	if errors.Is(fault, syscall.EIO) {
		if roll.IntN(2) == 0 { // of the directory, not of the file
			_ = os.Rename(path, filepath.Join(dir, final))
		}
		r.d.w.log("disk: commit %s: %v", filepath.Base(dir), fault)
		return fault
	}
	if err := r.Files.Commit(path, final); err != nil {
		return err
	}
	r.d.mu.Lock()
	delete(r.d.dirs, dir)
	if _, unsynced := r.d.files[filepath.Join(dir, record.StatusFile)]; !unsynced {
		first, _ := os.ReadFile(filepath.Join(dir, record.StatusFile)) // never synced: it may be empty
		r.d.files[filepath.Join(dir, record.StatusFile)] = &file{[][]byte{nil, first}}
	}
	r.d.mu.Unlock()
	r.d.w.log("disk: committed %s", filepath.Base(dir))
	return nil
}

func (r records) WriteUnsynced(path string, version int, v any) error {
	return r.write(path, func() error { return r.Files.WriteUnsynced(path, version, v) }, false)
}

// Write may be cut short by the end of podd, after the new content has its name and before that is synced.
func (r records) Write(path string, version int, v any) error {
	return r.write(path, func() error { return r.Files.WriteUnsynced(path, version, v) }, true)
}

// write must not wait: the engine holds a mutex.
func (r records) write(path string, write func() error, synced bool) error {
	id := filepath.Base(filepath.Dir(path))
	if err := r.enter("write status", path, false); err != nil {
		r.d.mu.Lock()
		r.d.stale[id], r.d.refused[id] = true, true
		r.d.mu.Unlock()
		return err
	}
	old, _ := os.ReadFile(path)
	if err := write(); err != nil {
		return err
	}
	r.d.mu.Lock()
	f := r.d.files[path]
	if f == nil {
		f = &file{}
		r.d.files[path] = f
	}
	f.contents = append(f.contents, old)
	if !synced {
		delete(r.d.stale, id)
	}
	r.d.mu.Unlock()
	if synced {
		r.burn("the sync of " + path)
		return r.Sync(path)
	}
	return nil
}

func (r records) Sync(path string) error {
	if r.c.isDead() {
		runtime.Goexit()
	}
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	if errors.Is(r.d.fault, syscall.EIO) {
		return r.d.fault
	}
	delete(r.d.files, path)
	delete(r.d.stale, filepath.Base(filepath.Dir(path)))
	return nil
}

func (r records) Remove(parent, name string) error {
	dir := filepath.Join(parent, name)
	if err := r.enter("remove record", dir, true); err != nil && !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	if err := r.Files.Remove(parent, name); err != nil {
		return err
	}
	r.d.mu.Lock()
	r.d.forget(dir)
	r.d.mu.Unlock()
	r.d.w.log("disk: removed %s", name)
	r.burn("the end of the removal of " + name)
	return nil
}

func (d *disk) forget(dir string) {
	delete(d.dirs, dir)
	for path := range d.files {
		if strings.HasPrefix(path, dir+"/") {
			delete(d.files, path)
		}
	}
}

// christenRecord reads whose record fill writes.
func (w *world) christenRecord(dir string, fill func(dir string) error) {
	tmp, err := os.MkdirTemp(w.m.Dir, "name-")
	if err != nil {
		w.t.Error(err)
		return
	}
	defer os.RemoveAll(tmp)
	path, id := filepath.Join(tmp, record.UnsyncedFile), filepath.Base(dir)
	if err := fill(tmp); err != nil {
		w.t.Error(err)
		return
	}
	var p record.Pod
	if strings.Contains(dir, "/"+record.ContainersDir+"/") {
		var c record.Container
		err = checkpoint.Read(path, record.Version, &c)
		m := c.Config.GetMetadata()
		pod := w.nameIn(filepath.Dir(filepath.Dir(dir)))
		w.christen(id, fmt.Sprintf("%s/%s.%d", pod, m.GetName(), m.GetAttempt()))
	} else {
		err = checkpoint.Read(path, record.Version, &p)
		m := p.Config.GetMetadata()
		w.christen(id, fmt.Sprintf("%s.%d", m.GetName(), m.GetAttempt()))
	}
	if err != nil {
		w.t.Error(err)
	}
}

// setFault makes the disk fail, nil makes it well.
func (d *disk) setFault(err error) {
	d.w.log("disk: %v from now on", err)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = err
}

// lose is what a power loss does to the disk.
func (d *disk) lose() {
	d.mu.Lock()
	defer d.mu.Unlock()
	named := func(paths []string) []string {
		slices.SortFunc(paths, func(a, b string) int { return strings.Compare(d.w.rename(a), d.w.rename(b)) })
		return paths
	}
	var dirs, files []string
	for dir := range d.dirs {
		dirs = append(dirs, dir)
	}
	for path := range d.files {
		files = append(files, path)
	}
	for _, dir := range named(dirs) {
		r := d.w.roll("lose " + d.w.nameIn(filepath.Base(dir)))
		switch r.IntN(3) {
		case 0:
			d.w.log("disk: lost %s", filepath.Base(dir))
			_ = os.RemoveAll(dir)
			d.forget(dir)
		case 1: // only the record under its first name may be damaged
			if path := filepath.Join(dir, record.UnsyncedFile); os.Truncate(path, 0) == nil {
				d.w.log("disk: damaged %s", filepath.Base(dir))
			}
		}
	}
	for _, path := range named(files) {
		f := d.files[path]
		if f == nil {
			continue // with its directory
		}
		delete(d.files, path)
		if _, err := os.Lstat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		r := d.w.roll("lose " + d.w.nameIn(filepath.Base(filepath.Dir(path))) + " status")
		n := r.IntN(len(f.contents) + 2)
		if n < len(f.contents) {
			d.w.log("disk: status %d of %s", n, filepath.Base(filepath.Dir(path)))
			_ = os.WriteFile(path, f.contents[n], 0o600)
		}
	}
	clear(d.dirs)
	maps.Copy(d.lost, d.stale)
}
