package daemon

import (
	"fmt"
	"testing"
	"time"

	"github.com/podd-project/podd/sandbox/operation"
)

// TestFailedStarts: a name is listed from a failed creation to the next one that succeeds, and the list is bounded.
func TestFailedStarts(t *testing.T) {
	f := newFailedStarts()
	add := func(verb, name string, outcome operation.Outcome, second int) {
		f.add(t.Context(), operation.Operation{Verb: verb, Name: name, Outcome: outcome, Began: time.Unix(int64(second), 0)})
	}
	add(operation.ExecSync, "ns/pod/probe", operation.OutcomeError, 0)
	add(operation.RunPod, "ns/gone", operation.OutcomeCanceled, 0)
	add(operation.RunPod, "ns/good", operation.OutcomeOK, 0)
	if got := f.list(); len(got) > 0 {
		t.Errorf("list = %+v, want none", got)
	}
	for i := range 2 * maxFailedStarts {
		add(operation.RunPod, fmt.Sprint("ns/pod", i), operation.OutcomeError, i)
	}
	newest := fmt.Sprint("ns/pod", 2*maxFailedStarts-1)
	if got := f.list(); len(got) != maxFailedStarts || got[0].Name != newest {
		t.Fatalf("%d failures, the newest %+v, want %d and %s", len(got), got[0], maxFailedStarts, newest)
	}
	add(operation.RunPod, newest, operation.OutcomeOK, 1000)
	if got := f.list(); len(got) != maxFailedStarts-1 || got[0].Name == newest {
		t.Errorf("after a success: %d failures, the newest %s, want one less", len(got), got[0].Name)
	}
}
