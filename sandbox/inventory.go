package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// InventoryItem is something that the engine has on the machine or on disk, described for people.
type InventoryItem struct {
	What, ID, Detail string
}

// Inventory lists what RemoveAll and GC would remove: pods and containers by their records, and all resources on the
// machine. It needs no Recover before it and changes nothing.
func (e *Engine) Inventory(ctx context.Context) ([]InventoryItem, error) {
	candidates, pending := e.janitor.Candidates(ctx)
	records, err := e.loadRecords()
	if err != nil {
		return nil, err
	}
	var items []InventoryItem
	for _, f := range records.findings {
		items = append(items, InventoryItem{"unreadable record of a " + f.What, f.ID, f.Detail})
	}
	for _, p := range records.pods {
		m := p.Config.GetMetadata()
		detail := m.GetNamespace() + "/" + m.GetName() + " " + string(p.Status().State)
		items = append(items, InventoryItem{"pod", p.ID, detail})
		for _, c := range records.containers[p.ID] {
			detail := c.Config.GetMetadata().GetName() + " " + string(c.Status().State)
			items = append(items, InventoryItem{"container", c.ID, detail})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(candidates)) {
		for _, kind := range candidates[id] {
			items = append(items, InventoryItem{kind.What + " on the machine", id, ""})
		}
	}
	var errs []error
	for _, p := range pending {
		errs = append(errs, fmt.Errorf("%s: %s", p.What, p.Error))
	}
	return items, errors.Join(errs...)
}

// RemoveAll removes all pods in parallel.
func (e *Engine) RemoveAll(ctx context.Context) error {
	pods := e.store.pods.List(nil)
	errs := make([]error, len(pods))
	var all sync.WaitGroup
	for i, p := range pods {
		all.Go(func() { errs[i] = e.RemovePod(ctx, p.ID) })
	}
	all.Wait()
	return errors.Join(errs...)
}
