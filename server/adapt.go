package server

import (
	"context"
	"iter"

	"github.com/podd-project/podd/sandbox"
)

// Adapt returns the Engine for e. It returns values where e returns its objects.
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

func (a adapter) Pod(id string) (Pod, error) {
	p, err := a.Engine.Pod(id)
	if err != nil {
		return Pod{}, err
	}
	return podOf(p), nil
}

func (a adapter) Pods() iter.Seq[Pod] {
	return func(yield func(Pod) bool) {
		for _, p := range a.Engine.Pods() {
			if !yield(podOf(p)) {
				return
			}
		}
	}
}

func (a adapter) Container(id string) (Container, error) {
	c, err := a.Engine.Container(id)
	if err != nil {
		return Container{}, err
	}
	return containerOf(c), nil
}

func (a adapter) Containers() iter.Seq[Container] {
	return func(yield func(Container) bool) {
		for _, c := range a.Engine.Containers() {
			if !yield(containerOf(c)) {
				return
			}
		}
	}
}

func (a adapter) ContainersOf(podID string) []Container {
	p, err := a.Engine.Pod(podID)
	if err != nil {
		return nil // the pod is removed, and its containers were before it
	}
	return a.containersOf(p)
}

func (a adapter) containersOf(p *sandbox.Pod) []Container {
	var out []Container
	for _, c := range a.Engine.ContainersOf(p) {
		out = append(out, containerOf(c))
	}
	return out
}

func (a adapter) Events(ctx context.Context, send func(Event) error) error {
	return a.Engine.Events(ctx, func(e sandbox.Event) error {
		return send(Event{Type: e.Type, ID: e.ID, At: e.At, Pod: podOf(e.Pod), Containers: a.containersOf(e.Pod)})
	})
}

func podOf(p *sandbox.Pod) Pod {
	return Pod{Record: &p.Pod, Status: p.Status(), Operations: p.Operations}
}

func containerOf(c *sandbox.Container) Container {
	return Container{
		Record: &c.Container, Status: c.Status(), LogPath: c.LogPath(), Handler: c.Pod().RequestedHandler,
		Operations: c.Operations,
	}
}
