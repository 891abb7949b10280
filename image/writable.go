package image

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// rwMaxAge is how old the usage of a writable layer gets before it is measured again.
	rwMaxAge = 10 * time.Second
	// rwRestFactor is the minimum time between measurements of a layer, as a multiple of the time that one takes: a
	// layer with a million files is measured rarely.
	rwRestFactor = 100
	// rwIdleFactor is the idle time after a measurement, as a multiple of the time it took: measuring takes at most a
	// tenth of the time, all layers together.
	rwIdleFactor = 9
	// rwKeepMeasuring is how long layers are measured after the last request for a figure. Without a kubelet there are
	// none.
	rwKeepMeasuring = 5 * time.Minute
)

// rwUsage measures the size of the containers' writable layers, in the background and at a bounded rate.
type rwUsage struct {
	age     time.Duration
	root    string // of the store
	list    func(context.Context) ([]string, error)
	measure func(ctx context.Context, container string) diskSize

	// requested holds a value while a round is due.
	requested chan struct{}
	asked     atomic.Int64 // time of the last request, in Unix nanoseconds
	total     atomic.Pointer[FsUsage]
	disk      atomic.Pointer[Filesystem]

	mu sync.Mutex
	// samples are indexed by container.
	samples map[string]sample
}

// sample is a measurement and the time of the next one.
type sample struct {
	FsUsage
	due time.Time
}

// Filesystem is the filesystem that holds the store.
type Filesystem struct {
	// Major and Minor are the numbers of its block device, or of an unnamed device if it has none.
	Major, Minor uint32
	// Bytes and Inodes are its size; InodesFree is what is free.
	Bytes, Inodes, InodesFree uint64
	At                        time.Time
}

func newRWUsage(s *Store, age time.Duration) *rwUsage {
	w := &rwUsage{
		age: age, root: s.layout.Root, list: s.ContainersWithMounts,
		measure: func(ctx context.Context, container string) diskSize {
			return s.usage.walk(ctx, s.UpperDir(container))
		},
		requested: make(chan struct{}, 1), samples: map[string]sample{},
	}
	w.total.Store(&FsUsage{Mountpoint: w.root, At: time.Now()})
	w.publishDisk()
	w.touch() // the first request should find a figure
	return w
}

// Writable returns the size of what a container has written to its root filesystem. It works from memory: the figure is
// seconds old, and older if there are many files. False for a container without a root filesystem, or with one that was
// not measured yet.
func (s *Store) Writable(container string) (FsUsage, bool) { return s.rwUsage.get(container) }

// Filesystem describes the filesystem that holds the store, and so every writable layer. It works from memory.
func (s *Store) Filesystem() Filesystem { return *s.rwUsage.disk.Load() }

func (w *rwUsage) get(container string) (FsUsage, bool) {
	w.touch()
	w.mu.Lock()
	defer w.mu.Unlock()
	f, ok := w.samples[container]
	return f.FsUsage, ok
}

// touch keeps the background measuring, and starts a round if it has stopped.
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
	const rounds = 4 // per rwMaxAge, so that no figure gets much older
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
		return // other methods report an unreadable directory
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

// add measures a new, empty layer.
func (w *rwUsage) add(ctx context.Context, container string) { w.measureOne(ctx, container) }

// measureOne measures one layer and returns how long that took.
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

// publishTotal publishes the size of all layers; it is as old as the oldest sample.
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

// publishDisk publishes the size of the filesystem.
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

// sleep waits for d; false if ctx ended first.
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
