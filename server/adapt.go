package server

import (
	"iter"

	"github.com/podd-project/podd/sandbox"
)

// Adapt makes an engine out of the real one: it hands out values where that one hands out its objects.
func Adapt(e *sandbox.Engine) Engine { return adapter{e} }

type adapter struct{ *sandbox.Engine }

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

func podOf(p *sandbox.Pod) Pod { return Pod{Record: &p.PodRecord, Status: p.Status()} }

func containerOf(c *sandbox.Container) Container {
	return Container{Record: &c.ContainerRecord, Status: c.Status(), LogPath: c.LogPath(), Handler: c.Pod().Handler}
}
