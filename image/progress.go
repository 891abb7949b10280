package image

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"go.podman.io/image/v5/types"

	"github.com/podd-project/podd/image/registry"
)

// Stages of a pull.
const (
	StageResolving   = "resolving"   // resolving the name at the registry
	StageDownloading = "downloading" // fetching and unpacking layers
	StageStoring     = "storing"     // all bytes were received
)

// PullProgress is the progress of one pull.
type PullProgress struct {
	Ref       string    `json:"ref"`
	Stage     string    `json:"stage"`
	StartedAt time.Time `json:"startedAt"`
	// Callers is the number of requests that wait for the pull; 0 during its grace period.
	Callers int `json:"callers"`
	// BytesDone and BytesTotal are compressed bytes of the layers known so far.
	BytesDone  uint64          `json:"bytesDone"`
	BytesTotal uint64          `json:"bytesTotal"`
	Layers     []LayerProgress `json:"layers"`
}

// LayerProgress is one layer, or the config, of an image being pulled.
type LayerProgress struct {
	Digest string `json:"digest"`
	Done   uint64 `json:"done"`
	// Total is zero if the registry does not report it.
	Total uint64 `json:"total"`
	// State is downloading, done, or present (in the store already).
	State string `json:"state"`
}

// States of a layer.
const (
	layerDownloading = "downloading"
	layerDone        = "done"
	layerPresent     = "present"
)

// progress collects the reports of a pull.
type progress struct {
	mu     sync.Mutex
	p      PullProgress
	layers map[string]*LayerProgress
	order  []string
	// received counts every byte, including those of layers that were restarted and of blobs that are not layers.
	received uint64
	// asking is set while podd asks the additional layer store for the pull.
	asking bool
}

func newProgress(ref string) *progress {
	return &progress{
		p:      PullProgress{Ref: ref, Stage: StageResolving, StartedAt: time.Now()},
		layers: map[string]*LayerProgress{},
	}
}

func (p *progress) setCallers(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.p.Callers = n
}

// Downloading says that layers are fetched, of the image ref if that is not empty: a file that is loaded can have
// several.
func (p *progress) Downloading(ref string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.p.Stage = StageDownloading
	if ref != "" {
		p.p.Ref = ref
	}
}

// restart forgets the layers, which another source may not have.
func (p *progress) restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.p.Stage, p.layers, p.order = StageResolving, map[string]*LayerProgress{}, nil
}

// SetAsking says whether podd asks the additional layer store for the pull.
func (p *progress) SetAsking(asks bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asking = asks
}

// Note records one report of containers/image.
func (p *progress) Note(r types.ProgressProperties) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.received += r.OffsetUpdate
	digest := r.Artifact.Digest.String()
	l, ok := p.layers[digest]
	if !ok {
		l = &LayerProgress{Digest: digest, Total: uint64(max(r.Artifact.Size, 0)), State: layerDownloading}
		p.layers[digest] = l
		p.order = append(p.order, digest)
	}
	switch r.Event {
	case types.ProgressEventRead: // also of a corrupt layer that was reported present
		l.Done, l.State = r.Offset, layerDownloading
	case types.ProgressEventDone:
		l.Done, l.State = max(r.Offset, l.Total), layerDone
	case types.ProgressEventSkipped:
		l.Done, l.State = l.Total, layerPresent
	}
}

// snapshot returns an independent copy.
func (p *progress) snapshot() PullProgress {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.p
	if out.Stage == StageDownloading && len(p.layers) > 0 && !p.missingLocked() {
		out.Stage = StageStoring
	}
	out.Layers = make([]LayerProgress, 0, len(p.order))
	for _, digest := range p.order {
		l := *p.layers[digest]
		out.Layers = append(out.Layers, l)
		out.BytesTotal += l.Total
		out.BytesDone += l.Done
	}
	return out
}

// waiting returns the number of bytes received so far, and whether the pull waits for the registry: no layer is known
// yet, or one is incomplete. While layers are only being unpacked, or the additional layer store is asked, it does not.
func (p *progress) waiting() (received uint64, waiting bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.received, !p.asking && (len(p.layers) == 0 || p.missingLocked())
}

// missingLocked reports whether a layer is incomplete.
func (p *progress) missingLocked() bool {
	return slices.ContainsFunc(p.order, func(digest string) bool {
		l := p.layers[digest]
		return l.State == layerDownloading && (l.Done < l.Total || l.Total == 0)
	})
}

// logInterval is the time between log messages about a long pull.
const logInterval = 30 * time.Second

// reportProgress logs the progress of the pull periodically until stop is called.
func reportProgress(ctx context.Context, log *logrus.Entry, p *progress) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(logInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				now := p.snapshot()
				log.WithFields(logrus.Fields{
					"stage": now.Stage, "bytes": now.BytesDone, "total": now.BytesTotal, "layers": len(now.Layers),
					"callers": now.Callers,
				}).Info("still pulling image")
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// stallWatch cancels a pull whose registry sends too little.
type stallWatch struct {
	// window is how long the registry may be slow; zero: indefinitely.
	window time.Duration
	// rate is the minimum rate, in bytes per second averaged over window.
	rate int64
}

// steps is the number of samples per window.
const steps = 10

// run cancels with registry.ErrStalled when the pull has waited all through a window and received too few bytes. It
// returns when ctx ends.
func (w stallWatch) run(ctx context.Context, p *progress, cancel context.CancelCauseFunc) {
	if w.window <= 0 {
		return
	}
	ticker := time.NewTicker(max(w.window/steps, time.Millisecond))
	defer ticker.Stop()
	var m stallMeter
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			received, waiting := p.waiting()
			if m.step(received, waiting, w.enough()) {
				cancel(registry.ErrStalled)
				return
			}
		}
	}
}

// enough returns the minimum number of bytes per window, at least one.
func (w stallWatch) enough() uint64 {
	return uint64(max(1, int64(w.window.Seconds()*float64(w.rate))))
}

// stallMeter holds the byte counts of the last samples, in a ring.
type stallMeter struct {
	ring [steps]uint64
	n    int
}

// step records one sample and reports whether a whole window of waiting brought fewer bytes than enough.
func (m *stallMeter) step(received uint64, waiting bool, enough uint64) bool {
	if !waiting {
		m.n = 0
		return false
	}
	i := m.n % steps
	old := m.ring[i]
	m.ring[i] = received
	m.n++
	return m.n > steps && received-old < enough
}

// byStart orders pulls by start time.
func byStart(a, b PullProgress) int {
	return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.Ref, b.Ref))
}
