package sandbox

import (
	"github.com/podd-project/podd/sandbox/lifecycle"
)

// store is the engine's index of its pods and containers.
type store struct {
	pods       *lifecycle.Table[podName, *Pod]
	containers *lifecycle.Table[containerName, *Container]
}

func newStore() store {
	return store{
		pods:       lifecycle.NewTable("pod sandbox", (*Pod).entry),
		containers: lifecycle.NewTable("container", (*Container).entry),
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

func (p *Pod) entry() lifecycle.Entry[podName] {
	m := p.Config.GetMetadata()
	return lifecycle.Entry[podName]{
		ID: p.ID, Name: podName{m.GetName(), m.GetNamespace(), m.GetUid(), m.GetAttempt()}, Created: p.CreatedAt,
	}
}

// Creation is how callers wait for RunPod, and claim its result.
func (p *Pod) Creation() *lifecycle.Creation { return p.creation }

func (c *Container) entry() lifecycle.Entry[containerName] {
	m := c.Config.GetMetadata()
	return lifecycle.Entry[containerName]{
		ID: c.ID, Name: containerName{c.PodID, m.GetName(), m.GetAttempt()}, Created: c.CreatedAt,
	}
}

// Creation is how callers wait for CreateContainer, and claim its result.
func (c *Container) Creation() *lifecycle.Creation { return c.creation }
