package server

import (
	"context"
	"iter"
	"slices"

	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
)

// Adapt returns the Engine for e. It returns views where e returns its objects.
func Adapt(e *sandbox.Engine) Engine { return adapter{e} }

type adapter struct{ *sandbox.Engine }

func (a adapter) RestorePod(ctx context.Context, r sandbox.RestoreRequest) (string, []string, error) {
	p, containers, err := a.Engine.RestorePod(ctx, r)
	if err != nil {
		return "", nil, err
	}
	var ids []string
	for _, c := range containers {
		ids = append(ids, c.ID)
	}
	return p.ID, ids, nil
}

func (a adapter) Pod(id string) (record.PodView, error) {
	p, err := a.Engine.Pod(id)
	if err != nil {
		return record.PodView{}, err
	}
	return p.View(), nil
}

func (a adapter) Pods() iter.Seq[record.PodView] { return views(a.Engine.Pods(), (*sandbox.Pod).View) }

func (a adapter) Container(id string) (record.ContainerView, error) {
	c, err := a.Engine.Container(id)
	if err != nil {
		return record.ContainerView{}, err
	}
	return c.View(), nil
}

func (a adapter) Containers() iter.Seq[record.ContainerView] {
	return views(a.Engine.Containers(), (*sandbox.Container).View)
}

func (a adapter) ContainersOf(podID string) []record.ContainerView {
	p, err := a.Engine.Pod(podID)
	if err != nil {
		return nil // the pod is removed, and its containers were before it
	}
	return slices.Collect(views(a.Engine.ContainersOf(p), (*sandbox.Container).View))
}

func (a adapter) LastOperations(id string) []operation.Operation {
	if p, err := a.Engine.Pod(id); err == nil {
		return p.Operations()
	}
	if c, err := a.Engine.Container(id); err == nil {
		return c.Operations()
	}
	return nil // it has been removed
}

func (a adapter) Events(ctx context.Context, send func(Event) error) error {
	return a.Engine.Events(ctx, func(e sandbox.Event) error {
		containers := slices.Collect(views(a.Engine.ContainersOf(e.Pod), (*sandbox.Container).View))
		return send(Event{Type: e.Type, ID: e.ID, At: e.At, Pod: e.Pod.View(), Containers: containers})
	})
}

// views makes a view of each object when it is its turn.
func views[T, V any](objects []T, view func(T) V) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, o := range objects {
			if !yield(view(o)) {
				return
			}
		}
	}
}
