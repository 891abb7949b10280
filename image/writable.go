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
	// writableAge is how old the figure of a writable layer gets before it is measured anew.
	writableAge = 10 * time.Second
	// writableRest is how many times longer a layer is left alone than it took to measure: one with a million
	// files is measured seldom.
	writableRest = 100
	// writableDuty bounds the part of the time that measuring takes, all layers together: one tenth.
	writableDuty = 9
	// writableAsked is how long layers are measured after somebody has asked: without a kubelet nobody has to.
	writableAsked = 5 * time.Minute
)

// writables measures what containers have written, in the background and at a bounded rate.
type writables struct {
	age     time.Duration
	root    string // of the store
	list    func(context.Context) ([]string, error)
	measure func(ctx context.Context, container string) space

	// wake asks for a round; it holds one.
	wake  chan struct{}
	asked atomic.Int64 // when, in Unix nanoseconds
	total atomic.Pointer[FsUsage]
	disk  atomic.Pointer[Filesystem]

	mu sync.Mutex
	// figures are by container.
	figures map[string]figure
}

// figure is a measurement and when the next is due.
type figure struct {
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

func newWritables(s *Store, age time.Duration) *writables {
	w := &writables{
		age: age, root: s.cfg.Root, list: s.ContainersWithMounts,
		measure: func(ctx context.Context, container string) space {
			return s.usage.walk(ctx, filepath.Join(s.containerDir(container), rootName, upperName))
		},
		wake: make(chan struct{}, 1), figures: map[string]figure{},
	}
	w.total.Store(&FsUsage{Mountpoint: w.root, At: time.Now()})
	w.stat()
	w.ask() // somebody will, and it should find something
	return w
}

// Writable tells what a container has written to its root filesystem. It answers from memory: the figure is seconds
// old, and older when there is a lot to count. False for a container that has no root filesystem, or none that was
// measured yet.
func (s *Store) Writable(container string) (FsUsage, bool) { return s.writables.get(container) }

// Filesystem describes the disk that the store, and so every writable layer, is on. It answers from memory.
func (s *Store) Filesystem() Filesystem { return *s.writables.disk.Load() }

func (w *writables) get(container string) (FsUsage, bool) {
	w.ask()
	w.mu.Lock()
	defer w.mu.Unlock()
	f, ok := w.figures[container]
	return f.FsUsage, ok
}

// ask keeps the measuring going, and gets it going when it has stopped.
func (w *writables) ask() {
	now := time.Now().UnixNano()
	if last := w.asked.Swap(now); now-last < int64(writableAsked) {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run measures until ctx ends.
func (w *writables) run(ctx context.Context) {
	const rounds = 4 // in the age of a figure, so that none gets much older
	timer := time.NewTimer(w.age / rounds)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-timer.C:
		}
		if time.Since(time.Unix(0, w.asked.Load())) < writableAsked {
			w.round(ctx)
		}
		timer.Reset(w.age / rounds)
	}
}

// round measures the layers that are due.
func (w *writables) round(ctx context.Context) {
	w.stat()
	containers, err := w.list(ctx)
	if err != nil {
		return // the store's directory cannot be read: its own errors say so
	}
	w.forget(containers)
	for _, c := range containers {
		if !w.due(c) {
			continue
		}
		took := w.count(ctx, c)
		if !sleep(ctx, writableDuty*took) {
			return
		}
	}
	w.sum()
}

// add measures a layer that is new, and so empty.
func (w *writables) add(ctx context.Context, container string) { w.count(ctx, container) }

// count measures one layer and returns how long it took.
func (w *writables) count(ctx context.Context, container string) time.Duration {
	start := time.Now()
	size := w.measure(ctx, container)
	if ctx.Err() != nil {
		return 0
	}
	now := time.Now()
	took := now.Sub(start)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.figures[container] = figure{
		FsUsage: FsUsage{Mountpoint: w.root, Bytes: size.bytes, Inodes: size.inodes, At: now},
		due:     now.Add(max(w.age, writableRest*took)),
	}
	return took
}

func (w *writables) due(container string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !time.Now().Before(w.figures[container].due)
}

// forget drops the containers that are gone.
func (w *writables) forget(containers []string) {
	there := make(map[string]bool, len(containers))
	for _, c := range containers {
		there[c] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.figures {
		if !there[c] {
			delete(w.figures, c)
		}
	}
}

// sum publishes what all layers take; it is as old as the oldest figure.
func (w *writables) sum() {
	total := FsUsage{Mountpoint: w.root, At: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.figures {
		total.Bytes += f.Bytes
		total.Inodes += f.Inodes
		if f.At.Before(total.At) {
			total.At = f.At
		}
	}
	w.total.Store(&total)
}

// stat publishes the size of the disk.
func (w *writables) stat() {
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
