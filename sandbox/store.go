package sandbox

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/sandbox/record"
)

// store is the engine's index of its pods and containers. Its mutex is the innermost one and is held over map
// access only.
type store struct {
	mu         sync.Mutex
	pods       map[string]*Pod
	containers map[string]*Container
	// podNames and containerNames find the object that a repeated create means.
	podNames       map[podName]*Pod
	containerNames map[containerName]*Container
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

func newStore() *store {
	return &store{
		pods: map[string]*Pod{}, containers: map[string]*Container{},
		podNames: map[podName]*Pod{}, containerNames: map[containerName]*Container{},
	}
}

func (p *Pod) name() podName {
	m := p.Config.GetMetadata()
	return podName{m.GetName(), m.GetNamespace(), m.GetUid(), m.GetAttempt()}
}

func (c *Container) name() containerName {
	m := c.Config.GetMetadata()
	return containerName{c.PodID, m.GetName(), m.GetAttempt()}
}

// addPod adds p unless another pod has its name, which it returns.
func (s *store) addPod(p *Pod) (other *Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.podNames[p.name()]; other != nil {
		return other
	}
	s.pods[p.ID], s.podNames[p.name()] = p, p
	return nil
}

// addContainer adds c unless another container of the pod has its name, which it returns.
func (s *store) addContainer(c *Container) (other *Container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.containerNames[c.name()]; other != nil {
		return other
	}
	s.containers[c.ID], s.containerNames[c.name()] = c, c
	return nil
}

func (s *store) removePod(p *Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, p.ID)
	if s.podNames[p.name()] == p {
		delete(s.podNames, p.name())
	}
}

// adoptPod adds a pod that an earlier daemon made. Two of one name are legal: the creation of one failed, and so did
// its undo. The ready one has the name; the other can be found by id. One that was never finished has no name: it is
// being discarded, and the kubelet asks for it again meanwhile.
func (s *store) adoptPod(p *Pod) (other *Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[p.ID] = p
	if p.Status().State == record.PodCreating {
		return nil
	}
	other = s.podNames[p.name()]
	if other == nil || p.Status().State == record.PodReady {
		s.podNames[p.name()] = p
	}
	return other
}

// adoptContainer is adoptPod for containers.
func (s *store) adoptContainer(c *Container) (other *Container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.containers[c.ID] = c
	if c.Status().State == record.ContainerCreating {
		return nil
	}
	other = s.containerNames[c.name()]
	s.containerNames[c.name()] = c
	return other
}

// freePodName lets another pod have p's name while p is still there: p's creation failed, and so did its undo.
func (s *store) freePodName(p *Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.podNames[p.name()] == p {
		delete(s.podNames, p.name())
	}
}

// freeContainerName is freePodName for containers.
func (s *store) freeContainerName(c *Container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.containerNames[c.name()] == c {
		delete(s.containerNames, c.name())
	}
}

func (s *store) removeContainer(c *Container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.containers, c.ID)
	if s.containerNames[c.name()] == c {
		delete(s.containerNames, c.name())
	}
}

func (s *store) pod(id string) (*Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return byPrefix(s.pods, "pod sandbox", id)
}

func (s *store) container(id string) (*Container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return byPrefix(s.containers, "container", id)
}

// podList returns all pods, oldest first.
func (s *store) podList() []*Pod {
	s.mu.Lock()
	pods := slices.Collect(maps.Values(s.pods))
	s.mu.Unlock()
	slices.SortFunc(pods, func(a, b *Pod) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return pods
}

// containerList returns the containers of pod, or of all pods when pod is nil, oldest first.
func (s *store) containerList(pod *Pod) []*Container {
	s.mu.Lock()
	var cs []*Container
	for _, c := range s.containers {
		if pod == nil || c.pod == pod {
			cs = append(cs, c)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(cs, func(a, b *Container) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return cs
}

// byPrefix finds the object whose id is id or, if there is only one, begins with it.
func byPrefix[T any](m map[string]*T, what, id string) (*T, error) {
	if o := m[id]; o != nil {
		return o, nil
	}
	if id == "" {
		return nil, fmt.Errorf("%w: %s id is empty", errdefs.ErrInvalidArgument, what)
	}
	var found *T
	for full, o := range m {
		if !strings.HasPrefix(full, id) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%w: %s id %q is ambiguous, give more of it", errdefs.ErrInvalidArgument, what, id)
		}
		found = o
	}
	if found == nil {
		return nil, fmt.Errorf("%s %q: %w", what, id, errdefs.ErrNotFound)
	}
	return found, nil
}
