package rootfs

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

// writable measures the size of the containers' writable layers, in the background and at a bounded rate.
type writable struct {
	age     time.Duration
	root    string // of the store
	list    func() ([]string, error)
	measure func(ctx context.Context, container string) Size

	// requested holds a value while a round is due.
	requested chan struct{}
	asked     atomic.Int64 // time of the last request, in Unix nanoseconds
	total     atomic.Pointer[Usage]
	disk      atomic.Pointer[Filesystem]

	mu sync.Mutex
	// samples are indexed by container.
	samples map[string]sample
}

// Usage is disk space in use.
type Usage struct {
	Mountpoint string
	Bytes      uint64
	Inodes     uint64
	At         time.Time
}

// sample is a measurement and the time of the next one.
type sample struct {
	Usage
	due time.Time
}

// Filesystem is the filesystem that holds the store.
type Filesystem struct {
	// Major and Minor are the numbers of its block device, or of an unnamed device if it has none.
	Major, Minor uint32
	// Bytes and Inodes are its size. BytesFree and InodesFree are the free part, without bytes reserved for root.
	Bytes, Inodes, BytesFree, InodesFree uint64
	At                                   time.Time
}

func newWritable(
	root string, list func() ([]string, error), measure func(ctx context.Context, container string) Size,
) *writable {
	w := &writable{
		age: rwMaxAge, root: root, list: list, measure: measure,
		requested: make(chan struct{}, 1), samples: map[string]sample{},
	}
	w.total.Store(&Usage{Mountpoint: w.root, At: time.Now()})
	w.disk.Store(&Filesystem{})
	w.publishDisk()
	w.touch() // the first request should find a figure
	return w
}

// Writable returns the size of the files that a container has written to its root filesystem. It works from memory: the
// figure is seconds old, and older if there are many files. False for a container without a root filesystem, or with
// one that was not measured yet.
func (m *Mounts) Writable(container string) (Usage, bool) { return m.writable.get(container) }

// WritableTotal returns the size of all containers' files, from memory, and requests a measurement.
func (m *Mounts) WritableTotal() Usage {
	m.writable.touch()
	return *m.writable.total.Load()
}

// Filesystem describes the filesystem that holds the writable layers, from memory; it is zero if it was never measured.
func (m *Mounts) Filesystem() Filesystem { return *m.writable.disk.Load() }

func (w *writable) get(container string) (Usage, bool) {
	w.touch()
	w.mu.Lock()
	defer w.mu.Unlock()
	f, ok := w.samples[container]
	return f.Usage, ok
}

// touch keeps the background measuring, and starts a round if it has stopped.
func (w *writable) touch() {
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
func (w *writable) run(ctx context.Context) {
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
func (w *writable) round(ctx context.Context) {
	containers, err := w.list()
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
func (w *writable) add(ctx context.Context, container string) { w.measureOne(ctx, container) }

// measureOne measures one layer and returns how long that took.
func (w *writable) measureOne(ctx context.Context, container string) time.Duration {
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
		Usage: Usage{Mountpoint: w.root, Bytes: size.Bytes, Inodes: size.Inodes, At: now},
		due:   now.Add(max(w.age, rwRestFactor*took)),
	}
	return took
}

func (w *writable) due(container string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !time.Now().Before(w.samples[container].due)
}

// forget drops the containers that are gone.
func (w *writable) forget(containers []string) {
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
func (w *writable) publishTotal() {
	total := Usage{Mountpoint: w.root, At: time.Now()}
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

// watchDisk publishes the size of the filesystem until ctx ends.
func (w *writable) watchDisk(ctx context.Context) {
	for sleep(ctx, w.age) {
		w.publishDisk()
	}
}

// publishDisk publishes the size of the filesystem, unless it cannot be read.
func (w *writable) publishDisk() {
	var fs unix.Statfs_t
	var st unix.Stat_t
	if unix.Statfs(w.root, &fs) != nil || unix.Stat(w.root, &st) != nil {
		return
	}
	w.disk.Store(&Filesystem{
		Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev),
		Bytes: fs.Blocks * uint64(fs.Bsize), BytesFree: fs.Bavail * uint64(fs.Bsize),
		Inodes: fs.Files, InodesFree: fs.Ffree, At: time.Now(),
	})
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
