package image

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// rwMaxAge is how old the figure of a writable layer gets before it is measured anew.
	rwMaxAge = 10 * time.Second
	// rwRestFactor is how many times longer a layer is left alone than it took to measure: one with a million
	// files is measured seldom.
	rwRestFactor = 100
	// rwIdleFactor bounds the part of the time that measuring takes, all layers together: one tenth.
	rwIdleFactor = 9
	// rwKeepMeasuring is how long layers are measured after somebody has asked: without a kubelet nobody has to.
	rwKeepMeasuring = 5 * time.Minute
)

// writables measures what containers have written, in the background and at a bounded rate.
type rwUsage struct {
	age     time.Duration
	root    string // of the store
	list    func(context.Context) ([]string, error)
	measure func(ctx context.Context, container string) diskSize

	// wake asks for a round; it holds one.
	requested chan struct{}
	asked     atomic.Int64 // when, in Unix nanoseconds
	total     atomic.Pointer[FsUsage]
	disk      atomic.Pointer[Filesystem]

	mu sync.Mutex
	// samples are by container.
	samples map[string]sample
}

// figure is a measurement and when the next is due.
type sample struct {
	FsUsage
	due time.Time
}

// Filesystem is the disk that the store is on.
type Filesystem struct {
	// Major and Minor are the numbers of its block device; those of Linux's unnamed devices when it has none.
	Major, Minor uint32
	// Bytes and Inodes are its size; InodesFree is what is left.
	Bytes, Inodes, InodesFree uint64
	At                        time.Time
}

func newRWUsage(s *Store, age time.Duration) *rwUsage {
	w := &rwUsage{
		age: age, root: s.cfg.Root, list: s.ContainersWithMounts,
		measure: func(ctx context.Context, container string) diskSize {
			return s.usage.walk(ctx, filepath.Join(s.containerDir(container), rootName, upperName))
		},
		requested: make(chan struct{}, 1), samples: map[string]sample{},
	}
	w.total.Store(&FsUsage{Mountpoint: w.root, At: time.Now()})
	w.publishDisk()
	w.touch() // somebody will, and it should find something
	return w
}

// Writable tells what a container has written to its root filesystem. It answers from memory: the figure is seconds
// old, and older when there is a lot to count. False for a container that has no root filesystem, or none that was
// measured yet.
func (s *Store) Writable(container string) (FsUsage, bool) { return s.rwUsage.get(container) }

// Filesystem describes the disk that the store, and so every writable layer, is on. It answers from memory.
func (s *Store) Filesystem() Filesystem { return *s.rwUsage.disk.Load() }

func (w *rwUsage) get(container string) (FsUsage, bool) {
	w.touch()
	w.mu.Lock()
	defer w.mu.Unlock()
	f, ok := w.samples[container]
	return f.FsUsage, ok
}

// ask keeps the measuring going, and gets it going when it has stopped.
func (w *rwUsage) touch() {
	now := time.Now().UnixNano()
	if last := w.asked.Swap(now); now-last < int64(rwKeepMeasuring) {
		return
	}
	select {
	case w.requested <- struct{}{}:
	default:
	}
}

// run measures until ctx ends.
func (w *rwUsage) run(ctx context.Context) {
	const rounds = 4 // in the age of a figure, so that none gets much older
	timer := time.NewTimer(w.age / rounds)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.requested:
		case <-timer.C:
		}
		if time.Since(time.Unix(0, w.asked.Load())) < rwKeepMeasuring {
			w.round(ctx)
		}
		timer.Reset(w.age / rounds)
	}
}

// round measures the layers that are due.
func (w *rwUsage) round(ctx context.Context) {
	w.publishDisk()
	containers, err := w.list(ctx)
	if err != nil {
		return // the store's directory cannot be read: its own errors say so
	}
	w.forget(containers)
	for _, c := range containers {
		if !w.due(c) {
			continue
		}
		took := w.measureOne(ctx, c)
		if !sleep(ctx, rwIdleFactor*took) {
			return
		}
	}
	w.publishTotal()
}

// add measures a layer that is new, and so empty.
func (w *rwUsage) add(ctx context.Context, container string) { w.measureOne(ctx, container) }

// count measures one layer and returns how long it took.
func (w *rwUsage) measureOne(ctx context.Context, container string) time.Duration {
	start := time.Now()
	size := w.measure(ctx, container)
	if ctx.Err() != nil {
		return 0
	}
	now := time.Now()
	took := now.Sub(start)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.samples[container] = sample{
		FsUsage: FsUsage{Mountpoint: w.root, Bytes: size.bytes, Inodes: size.inodes, At: now},
		due:     now.Add(max(w.age, rwRestFactor*took)),
	}
	return took
}

func (w *rwUsage) due(container string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !time.Now().Before(w.samples[container].due)
}

// forget drops the containers that are gone.
func (w *rwUsage) forget(containers []string) {
	there := make(map[string]bool, len(containers))
	for _, c := range containers {
		there[c] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.samples {
		if !there[c] {
			delete(w.samples, c)
		}
	}
}

// sum publishes what all layers take; it is as old as the oldest figure.
func (w *rwUsage) publishTotal() {
	total := FsUsage{Mountpoint: w.root, At: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.samples {
		total.Bytes += f.Bytes
		total.Inodes += f.Inodes
		if f.At.Before(total.At) {
			total.At = f.At
		}
	}
	w.total.Store(&total)
}

// stat publishes the size of the disk.
func (w *rwUsage) publishDisk() {
	d := Filesystem{At: time.Now()}
	var fs unix.Statfs_t
	if err := unix.Statfs(w.root, &fs); err == nil {
		d.Bytes, d.Inodes, d.InodesFree = fs.Blocks*uint64(fs.Bsize), fs.Files, fs.Ffree
	}
	var st unix.Stat_t
	if err := unix.Stat(w.root, &st); err == nil {
		d.Major, d.Minor = unix.Major(st.Dev), unix.Minor(st.Dev)
	}
	w.disk.Store(&d)
}

// sleep is false when ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
