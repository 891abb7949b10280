package sandbox

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/podd-project/podd/sandbox/record"
)

// PendingCleanup is something on the machine that podd has to free and could not free yet.
type PendingCleanup struct {
	// What is the kind of resource, ID the pod or container that it belongs to.
	What  string `json:"what"`
	ID    string `json:"id,omitempty"`
	Error string `json:"error"`
}

func (p PendingCleanup) err() error { return fmt.Errorf("%s %s: %s", p.What, p.ID, p.Error) }

// PendingCleanups returns what is still to be freed: pods whose teardown failed or that ended and were not stopped yet,
// containers whose undo failed, and garbage that could not be removed.
func (e *Engine) PendingCleanups() []PendingCleanup {
	var pending []PendingCleanup
	for _, p := range e.Pods() {
		if s := p.Status(); s.State == record.PodNotReady && s.Reason != "" {
			pending = append(pending, PendingCleanup{What: "pod sandbox", ID: p.ID, Error: s.Reason})
		}
	}
	for _, c := range e.Containers() {
		if c.Status().State == record.ContainerCreating {
			pending = append(pending, PendingCleanup{
				What: "container", ID: c.ID, Error: "its creation failed, and so did the undo",
			})
		}
	}
	if garbage := e.janitor.pending.Load(); garbage != nil {
		pending = append(pending, *garbage...)
	}
	slices.SortStableFunc(pending, func(a, b PendingCleanup) int {
		return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(a.ID, b.ID))
	})
	return pending
}
