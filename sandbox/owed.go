package sandbox

import (
	"cmp"
	"slices"

	"github.com/podd-project/podd/sandbox/record"
)

// Debt is something on the machine that podd has to free and could not yet.
type Debt struct {
	// What is the kind of thing, ID the pod or container that it is, or was, of.
	What  string `json:"what"`
	ID    string `json:"id,omitempty"`
	Error string `json:"error"`
}

// Owed returns what has to be freed yet: the rest of pods that could not be torn down or that nobody has stopped since they
// ended, containers that could not be undone, and garbage that could not be removed.
func (e *Engine) Owed() []Debt {
	var owed []Debt
	for _, p := range e.Pods() {
		if s := p.Status(); s.State == record.PodNotReady && s.Reason != "" {
			owed = append(owed, Debt{What: "pod sandbox", ID: p.ID, Error: s.Reason})
		}
	}
	for _, c := range e.Containers() {
		if c.Status().State == record.ContainerCreating {
			owed = append(owed, Debt{What: "container", ID: c.ID, Error: "it could be neither created nor undone"})
		}
	}
	if debts := e.debts.Load(); debts != nil {
		owed = append(owed, *debts...)
	}
	slices.SortStableFunc(owed, func(a, b Debt) int { return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(a.ID, b.ID)) })
	return owed
}
