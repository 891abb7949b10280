package sandbox

import (
	"context"
	"errors"
	"maps"
	"slices"
)

// Thing is something that the engine has on the machine or on disk, for people.
type Thing struct {
	What, ID, Detail string
}

// Inventory lists what RemoveAll and Collect would remove: pods and containers by their records, and what is on the machine
// under any id. It needs no Recover before it and changes nothing.
func (e *Engine) Inventory(ctx context.Context) ([]Thing, error) {
	chores, debts := e.chores(ctx)
	found, err := e.takeCensus()
	if err != nil {
		return nil, err
	}
	var things []Thing
	for _, f := range found.findings {
		things = append(things, Thing{"unreadable record of a " + f.What, f.ID, f.Detail})
	}
	for _, p := range found.pods {
		m := p.Config.GetMetadata()
		things = append(things, Thing{"pod", p.ID, m.GetNamespace() + "/" + m.GetName() + " " + string(p.Status().State)})
		for _, c := range found.containers[p.ID] {
			things = append(things, Thing{"container", c.ID, c.Config.GetMetadata().GetName() + " " + string(c.Status().State)})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(chores)) {
		for _, kind := range chores[id] {
			things = append(things, Thing{kind.what + " on the machine", id, ""})
		}
	}
	var errs []error
	for _, d := range debts {
		errs = append(errs, d.err())
	}
	return things, errors.Join(errs...)
}

// Settled returns once every pod and container that Recover found is in agreement with the machine.
func (e *Engine) Settled(ctx context.Context) error { return e.settling.close(ctx) }

// RemoveAll removes every pod, side by side.
func (e *Engine) RemoveAll(ctx context.Context) error {
	pods := e.store.podList()
	errs := make(chan error, len(pods))
	for _, p := range pods {
		go func() { errs <- e.RemovePod(ctx, p.ID) }()
	}
	var all []error
	for range pods {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}
