package garbage

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/sandbox/lifecycle"
)

const (
	// retryDelay is the delay after a collection that failed; it doubles up to maxRetryDelay.
	retryDelay    = 10 * time.Second
	maxRetryDelay = 10 * time.Minute
)

// Records are the records of pods and containers.
type Records interface {
	// AwaitLoaded returns once each record has been tried to read.
	AwaitLoaded(ctx context.Context) error
	// Claimed returns the ids of the pods and containers with a record, readable or not. known is false if there may be
	// others.
	Claimed() (ids map[string]bool, known bool)
	// Pods returns the ids of the pods with a record, readable or not.
	Pods() []string
}

// Janitor frees the resources of a machine that are in no record, and keeps the records that cannot be used.
type Janitor struct {
	Machine Machine
	Records Records
	Log     logrus.FieldLogger
	// Timeout returns the limit of one attempt to free a resource.
	Timeout func() time.Duration

	wake chan struct{} // makes Run collect again

	mu          sync.Mutex // guards the lists
	pending     []Trouble  // of the last collection
	quarantined []Trouble
}

// NewJanitor returns a janitor that does nothing until Run or Collect.
func NewJanitor(m Machine, records Records, log logrus.FieldLogger, timeout func() time.Duration) *Janitor {
	return &Janitor{Machine: m, Records: records, Log: log, Timeout: timeout, wake: make(chan struct{}, 1)}
}

// Run collects garbage until ctx ends: at the start, after WakeUp, and repeatedly while something cannot be freed. It
// runs concurrently with everything else.
func (j *Janitor) Run(ctx context.Context) {
	wait := time.Duration(0)
	for {
		err := j.Collect(ctx)
		if ctx.Err() != nil {
			return
		}
		var retry <-chan time.Time
		if wait = min(max(2*wait, retryDelay), maxRetryDelay); err != nil {
			if len(j.Pending()) > 0 {
				j.Log.WithError(err).WithField("retry_in", wait.String()).Error("failed to remove garbage")
			}
			retry = time.After(wait)
		} else {
			wait = 0
		}
		select {
		case <-retry:
		case <-j.wake:
		case <-ctx.Done():
			return
		}
	}
}

// WakeUp makes Run collect again.
func (j *Janitor) WakeUp() {
	select {
	case j.wake <- struct{}{}:
	default: // it will
	}
}

// Pending returns the resources that the last collection could not free.
func (j *Janitor) Pending() []Trouble {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.pending)
}

// Troubles returns the resources that the last collection could not free, and the damaged records in the quarantine,
// found by this daemon or before.
func (j *Janitor) Troubles() []Trouble {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Concat(j.pending, j.quarantined)
}

// Collect frees resources that no record claims: those of damaged records and of pods whose directory is gone. Pods may
// be created concurrently: the machine is listed before the records, and a new pod has a record before anything else of
// it exists. errdefs.ErrUnavailable: the network was not collected because a pod was being attached.
func (j *Janitor) Collect(ctx context.Context) error {
	if err := j.Records.AwaitLoaded(ctx); err != nil {
		return err
	}
	candidates, pending := j.Candidates(ctx)
	var mu sync.Mutex // guards pending
	var all sync.WaitGroup
	for id, kinds := range j.unclaimed(candidates) {
		all.Go(func() {
			if what, err := j.free(ctx, id, kinds); err != nil {
				mu.Lock()
				defer mu.Unlock()
				pending = append(pending, newCleanup(what, id, err))
			}
		})
	}
	all.Wait()
	if err := j.Machine.RemoveLostCommands(ctx); err != nil {
		pending = append(pending, newCleanup("commands of a stopped podd", "", err))
	}
	err := j.collectNetworks(ctx) // after the pods whose attachments are known
	if err != nil && !errdefs.IsUnavailable(err) {
		pending = append(pending, newCleanup("CNI garbage collection", "", err))
		err = nil
	}
	j.setPending(pending)
	for _, p := range pending {
		err = errors.Join(err, p.err())
	}
	return err
}

func newCleanup(what, id string, err error) Trouble {
	return Trouble{Kind: Cleanup, What: what, ID: id, Since: time.Now(), Error: err.Error()}
}

// setPending replaces the list. Pending items keep their time.
func (j *Janitor) setPending(pending []Trouble) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range pending {
		for _, old := range j.pending {
			if old.What == pending[i].What && old.ID == pending[i].ID {
				pending[i].Since = old.Since
			}
		}
	}
	j.pending = pending
}

// Candidates lists the resources on the machine, by id, in the order in which they can be freed, and the failures to
// list them.
func (j *Janitor) Candidates(ctx context.Context) (map[string][]Kind, []Trouble) {
	candidates := map[string][]Kind{}
	var pending []Trouble
	for _, kind := range j.Machine.Kinds() {
		ids, err := kind.List(ctx)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			pending = append(pending, newCleanup(kind.What+" list", "", err))
		}
		for _, id := range ids {
			candidates[id] = append(candidates[id], kind)
		}
	}
	return candidates, pending
}

// unclaimed removes the candidates whose id is in a record; all of them if not all such ids are known.
func (j *Janitor) unclaimed(candidates map[string][]Kind) map[string][]Kind {
	claimed, known := j.Records.Claimed()
	if !known {
		return nil
	}
	maps.DeleteFunc(candidates, func(id string, _ []Kind) bool { return claimed[id] })
	return candidates
}

// free frees the resources left under one id, up to the first failure, because it may use those that follow.
func (j *Janitor) free(ctx context.Context, id string, kinds []Kind) (what string, err error) {
	for _, kind := range kinds {
		j.Log.WithField("id", id).Warnf("%s belongs to no record, removing it", kind.What)
		ctx, cancel := lifecycle.WithTimeout(ctx, j.Timeout(), "teardown took longer than %v")
		err := kind.Free(ctx, id)
		cancel()
		if err != nil {
			return kind.What, err
		}
	}
	return "", nil
}

// collectNetworks makes the CNI plugins free the addresses of pods without a record.
func (j *Janitor) collectNetworks(ctx context.Context) error {
	ctx, cancel := lifecycle.WithTimeout(ctx, j.Timeout(), "plugins took longer than %v")
	defer cancel()
	return j.Machine.Network.GC(ctx, j.Records.Pods)
}
