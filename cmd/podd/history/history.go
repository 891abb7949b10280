// Package history keeps finished operations on disk, for questions about pods that are gone: which operation failed or
// was slow, in which stage. It survives a restart and a kill of the daemon; after a power failure the last ones may be
// missing. It takes at most maxBytes, enough for 10,000 operations or more, and then drops the oldest.
//
// A segment is a file with a line of JSON for each operation. The last one is appended to; when it is full it is
// compressed. Add does not wait for the disk: one goroutine writes. The daemon's wiring adds operations; the admin API
// and the command `podd history` read them.
package history

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"

	"github.com/podd-project/podd/sandbox/operation"
)

const (
	// maxBytes bounds the files together.
	maxBytes = 1 << 20
	// segmentBytes is the size at which a segment is compressed.
	segmentBytes = 128 << 10
	// maxQueue is how many operations may wait to be written. Further ones are dropped.
	maxQueue = 1024
	// maxError bounds the error of an operation, in bytes; maxStages its stages. More are cut.
	maxError  = 1 << 10
	maxStages = 64
	// execInterval is the minimum time between two ExecSyncs in the history: probes may fail every second, in every pod.
	execInterval = time.Second
	// sessionInterval is the same for streaming sessions, of which maxBurst may come at once: programs use them too.
	sessionInterval, maxBurst = 10 * time.Second, 100
)

// History records operations. Its methods may be called concurrently.
type History struct {
	log   logrus.FieldLogger
	queue chan *operation.Operation
	// stop is closed by Close, done when run has returned.
	stop, done chan struct{}

	// dropped counts operations since the last one that was written.
	dropped  atomic.Uint64
	lastExec atomic.Int64 // time of the last ExecSync in the history, in nanoseconds
	sessions *rate.Limiter

	mu     sync.Mutex // guards active, and the files against List
	active *segment
	dir    string
	failed bool // the last write failed
}

// Dir returns the directory of the history of the podd with that root.
func Dir(root string) string { return filepath.Join(root, "history") }

// Open returns the history in dir, which is created, and starts to write. The caller must call Close.
func Open(dir string, log logrus.FieldLogger) (*History, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open history: %w", err)
	}
	active, err := openLast(dir)
	if err != nil {
		return nil, fmt.Errorf("open history: %w", err)
	}
	h := &History{
		log: log, dir: dir, active: active, sessions: rate.NewLimiter(rate.Every(sessionInterval), maxBurst),
		queue: make(chan *operation.Operation, maxQueue), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go h.run()
	return h, nil
}

// Close writes the queued operations. Those added later are lost.
func (h *History) Close() error {
	close(h.stop)
	<-h.done
	return h.active.close()
}

// Add queues a finished operation. It does not block. ExecSyncs are recorded only if they failed, and at most one each
// execInterval. Sessions are limited too.
func (h *History) Add(_ context.Context, o operation.Operation) {
	switch o.Verb {
	case operation.ExecSync:
		if !h.takesExec(o) {
			return
		}
	case operation.Exec, operation.Attach, operation.PortForward:
		if !h.sessions.Allow() {
			return
		}
	}
	o.Stages = slices.Clone(o.Stages[:min(len(o.Stages), maxStages)])
	o.Error = o.Error[:min(len(o.Error), maxError)]
	select {
	case h.queue <- &o:
	default:
		h.dropped.Add(1)
	}
}

func (h *History) takesExec(o operation.Operation) bool {
	now, last := time.Now().UnixNano(), h.lastExec.Load()
	return o.Outcome != operation.OutcomeOK && now-last >= int64(execInterval) && h.lastExec.CompareAndSwap(last, now)
}

// run writes the queued operations, until Close.
func (h *History) run() {
	defer close(h.done)
	for {
		select {
		case o := <-h.queue:
			h.write(o)
		case <-h.stop:
			for len(h.queue) > 0 {
				h.write(<-h.queue)
			}
			return
		}
	}
}

// write appends one operation. A failure is logged once until a write succeeds.
func (h *History) write(o *operation.Operation) {
	if n := h.dropped.Swap(0); n > 0 {
		h.log.WithField("operations", n).Warn("history lacks operations: the disk is too slow")
	}
	line, err := json.Marshal(o)
	if err == nil {
		err = h.append(append(line, '\n'))
	}
	if err != nil && !h.failed {
		h.log.WithError(err).Warn("failed to record an operation in the history")
	}
	h.failed = err != nil
}

func (h *History) append(line []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.active.size >= segmentBytes {
		if err := h.sealLocked(); err != nil {
			return err
		}
	}
	return h.active.append(line)
}

// sealLocked compresses the active segment and makes room for the next one.
func (h *History) sealLocked() error {
	next, err := h.active.seal()
	if err != nil {
		return err
	}
	h.active = next
	return prune(h.dir)
}
