package worker

import (
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/types"

	"github.com/podd-project/podd/image/registry"
)

// Job is the work of a pull's process: JSON on its stdin. The end of its stdin means that it must stop. It may hold
// credentials.
type Job struct {
	Config registry.Config
	Layout Layout
	// Hosts are those that registries.conf names.
	Hosts []string `json:",omitempty"`
	// Ref is a full name, with a tag or a digest.
	Ref         string
	Auth        *registry.Auth    `json:",omitempty"`
	Annotations map[string]string `json:",omitempty"`
	// Verify is set if nothing is pulled: the id of a stored image whose signatures are verified, under Names.
	Verify string   `json:",omitempty"`
	Names  []string `json:",omitempty"`
	// Load is set if the images of a file are copied: the path of a layout or an archive.
	Load string `json:",omitempty"`
	// Part is set if a part of the artifact Ref is fetched, into no store.
	Part *Part `json:",omitempty"`
	// Idle is set if the process is the last of podd's cgroup to get a CPU, so that pods come first. See child.Process.
	Idle bool `json:",omitempty"`
	// Corrupt are ids of layers that are fetched again, see refetch.
	Corrupt []string `json:",omitempty"`
	// Dir is for temporary files; the daemon removes it.
	Dir string
}

// offline reports whether the process needs no network: it reads files of this node only.
func (job Job) offline() bool {
	return job.Load != "" || job.Verify != ""
}

// Kinds of reports.
const (
	reportStage  = "stage"
	reportBlob   = "blob"
	reportImage  = "image"
	reportLookUp = "lookup"
	reportDone   = "done"
	reportFailed = "failed"
)

// pullReport is one line on the stdout of a pull's process. The daemon does not trust it: a registry's answers may
// have taken the process over.
type pullReport struct {
	Kind string
	// Image is set if Kind is reportStage and a file is loaded: the name of the image that is copied next.
	Image string `json:",omitempty"`
	// Event and the rest are types.ProgressProperties of a blob.
	Event        types.ProgressEvent `json:",omitempty"`
	Digest       digest.Digest       `json:",omitempty"`
	Size         int64               `json:",omitempty"`
	Offset       uint64              `json:",omitempty"`
	OffsetUpdate uint64              `json:",omitempty"`
	// Result is set if Kind is reportDone, Loaded if it is reportImage.
	Result Result
	Loaded *Loaded `json:",omitempty"`
	// LookUp is set if Kind is reportLookUp.
	LookUp *LookUp `json:",omitempty"`
	// Error and ErrorKind (an index of errorKinds, from 1) are set if Kind is reportFailed.
	Error     string `json:",omitempty"`
	ErrorKind int    `json:",omitempty"`
}

// errorKinds are what errors.Is finds in a failed pull; both sides are the same program.
func errorKinds() []error {
	return []error{
		registry.ErrRegistryUnavailable, registry.ErrSignatureInvalid, errdefs.ErrInvalidArgument, errdefs.ErrNotFound,
		errdefs.ErrUnauthenticated, errdefs.ErrPermissionDenied, errdefs.ErrFailedPrecondition,
		errdefs.ErrResourceExhausted, errdefs.ErrUnavailable, errdefs.ErrAborted, errdefs.ErrDataLoss,
	}
}

// failedReport describes err, classified here, where its type is known.
func failedReport(err error) pullReport {
	classified := registry.Classify(err)
	r := pullReport{Kind: reportFailed, Error: registry.Scrub(classified.Error(), nil)}
	for i, kind := range errorKinds() {
		if errors.Is(classified, kind) {
			r.ErrorKind = i + 1
			break
		}
	}
	return r
}

// failure returns the error that failedReport described.
func (r pullReport) failure() error {
	text := registry.Scrub(r.Error, nil)
	kinds := errorKinds()
	if r.ErrorKind < 1 || r.ErrorKind > len(kinds) {
		return errors.New(text)
	}
	return registry.NewError(text, kinds[r.ErrorKind-1], errors.New(text))
}

// reportInterval is the time between reports of one blob's progress.
const reportInterval = 100 * time.Millisecond

// reporter writes reports. Progress of one blob is sent at most once per reportInterval, by calls of flush.
type reporter struct {
	mu      sync.Mutex
	out     *json.Encoder
	pending map[digest.Digest]pullReport
	order   []digest.Digest
}

func newReporter(w io.Writer) *reporter {
	return &reporter{out: json.NewEncoder(w), pending: map[digest.Digest]pullReport{}}
}

// send writes r after everything that is pending.
func (w *reporter) send(r pullReport) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.flushLocked(); err != nil {
		return err
	}
	return w.out.Encode(r)
}

// note records the progress of a blob: the library reports every read.
func (w *reporter) Note(p types.ProgressProperties) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := p.Artifact.Digest
	old, ok := w.pending[key]
	if !ok {
		w.order = append(w.order, key)
	}
	w.pending[key] = pullReport{
		Kind: reportBlob, Event: p.Event, Digest: key, Size: p.Artifact.Size, Offset: p.Offset,
		OffsetUpdate: old.OffsetUpdate + p.OffsetUpdate,
	}
}

func (w *reporter) flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flushLocked()
}

func (w *reporter) flushLocked() error {
	for _, key := range w.order {
		if err := w.out.Encode(w.pending[key]); err != nil {
			return err
		}
	}
	clear(w.pending)
	w.order = w.order[:0]
	return nil
}
