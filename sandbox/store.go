package sandbox

import (
	"github.com/podd-project/podd/sandbox/creation"
	"github.com/podd-project/podd/sandbox/index"
)

// store is the engine's index of its pods and containers.
type store struct {
	pods       *index.Table[podName, *Pod]
	containers *index.Table[containerName, *Container]
}

func newStore() store {
	return store{
		pods:       index.New("pod sandbox", (*Pod).entry),
		containers: index.New("container", (*Container).entry),
	}
}

// containersOf returns the containers of p, oldest first.
func (s store) containersOf(p *Pod) []*Container {
	return s.containers.List(func(c *Container) bool { return c.pod == p })
}

// podName is what makes a pod sandbox unique to the kubelet.
type podName struct {
	name, namespace, uid string
	attempt              uint32
}

// containerName is what makes a container unique in its pod.
type containerName struct {
	pod, name string
	attempt   uint32
}

func (p *Pod) entry() index.Entry[podName] {
	m := p.Config.GetMetadata()
	return index.Entry[podName]{
		ID: p.ID, Name: podName{m.GetName(), m.GetNamespace(), m.GetUid(), m.GetAttempt()}, Created: p.CreatedAt,
	}
}

// Creation is how callers wait for RunPod, and claim its result.
func (p *Pod) Creation() *creation.Creation { return p.creation }

func (c *Container) entry() index.Entry[containerName] {
	m := c.Config.GetMetadata()
	return index.Entry[containerName]{
		ID: c.ID, Name: containerName{c.PodID, m.GetName(), m.GetAttempt()}, Created: c.CreatedAt,
	}
}

// Creation is how callers wait for CreateContainer, and claim its result.
func (c *Container) Creation() *creation.Creation { return c.creation }
