package daemon

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/podd-project/podd/sandbox/operation"
)

// maxFailedStarts bounds the failed starts that are kept.
const maxFailedStarts = 64

// failedStarts are the pods and containers whose last creation failed, by name. The status answers from memory: it is
// asked when the disk hangs.
type failedStarts struct {
	mu   sync.Mutex // guards last
	last map[string]operation.Operation
}

func newFailedStarts() *failedStarts { return &failedStarts{last: map[string]operation.Operation{}} }

// add notes how an operation ended.
func (f *failedStarts) add(_ context.Context, o operation.Operation) {
	if o.Verb != operation.RunPod && o.Verb != operation.CreateContainer {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.last, o.Name)
	if o.Outcome == operation.OutcomeOK || o.Outcome == operation.OutcomeCanceled {
		return
	}
	if len(f.last) >= maxFailedStarts {
		delete(f.last, f.listLocked()[maxFailedStarts-1].Name)
	}
	f.last[o.Name] = o
}

// list returns them, the newest first.
func (f *failedStarts) list() []operation.Operation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listLocked()
}

func (f *failedStarts) listLocked() []operation.Operation {
	return slices.SortedFunc(maps.Values(f.last), func(a, b operation.Operation) int { return b.Began.Compare(a.Began) })
}
