package nri

import (
	"context"
	"fmt"

	"github.com/containerd/nri/pkg/api"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/convert"
	"github.com/podd-project/podd/sandbox/record"
)

// RunPod tells the plugins of a pod that is being created. An error refuses it.
func (p *Plugins) RunPod(ctx context.Context, pod record.PodView) error {
	for _, one := range p.announcePod(pod.ID) {
		msg := podMessage(pod)
		change := &api.StateChangeEvent{Event: api.Event_RUN_POD_SANDBOX, Pod: msg}
		if _, err := ask(ctx, one, api.Event_RUN_POD_SANDBOX, &api.RunPodSandboxRequest{Pod: msg},
			orStateChange(one, change, one.service.RunPodSandbox)); err != nil {
			return err
		}
	}
	return nil
}

// UpdatePod tells the plugins of new limits of a pod, before they are set. An error refuses them.
func (p *Plugins) UpdatePod(
	ctx context.Context, pod record.PodView, overhead, resources *cri.LinuxContainerResources,
) error {
	for _, one := range p.joined() {
		request := &api.UpdatePodSandboxRequest{
			Pod: podMessage(pod), OverheadLinuxResources: resourcesMessage(overhead),
			LinuxResources: resourcesMessage(resources),
		}
		if _, err := ask(ctx, one, api.Event_UPDATE_POD_SANDBOX, request, one.service.UpdatePodSandbox); err != nil {
			return err
		}
	}
	return nil
}

// Create lets the plugins adjust a container, and changes c.Spec accordingly. Updates of other containers that the
// plugins ask for have been made when it returns, but those of containers that are being created. An error refuses the
// container; c.Spec is then of no use.
func (p *Plugins) Create(ctx context.Context, c Creation) (Adjustment, error) {
	plugins := p.announceContainer(c.Container.ID)
	if len(plugins) == 0 && !p.cfg.Validator.Enable {
		return Adjustment{}, nil
	}
	request := &api.CreateContainerRequest{
		Pod: podMessage(c.Container.Pod), Container: containerMessage(c.Container, c.Spec),
	}
	if err := checkSize(request.GetPod(), request.GetContainer()); err != nil {
		return Adjustment{}, err
	}
	m := &merge{}
	defer m.endTurn()
	a, err := m.adaptation(p, plugins)
	if err != nil {
		return Adjustment{}, err
	}
	reply, err := a.CreateContainer(ctx, request)
	if err != nil {
		return Adjustment{}, m.refusal(err)
	}
	limits, err := apply(c, m.complete(reply.GetAdjust()))
	if err != nil {
		return Adjustment{}, fmt.Errorf("NRI plugins adjust the container: %w", err)
	}
	p.describe(c.Container.ID, p.bounded(c.Container, containerMessage(c.Container, c.Spec)))
	p.evict(m.evict)
	return Adjustment{Fields: fieldsOf(m.owners, c.Container.ID), Resources: limits},
		m.updateInTurn(ctx, p, reply.GetUpdate())
}

// Start tells the plugins of a container that is about to be started. An error refuses it.
func (p *Plugins) Start(ctx context.Context, c record.ContainerView) error {
	for _, one := range p.joined() {
		if !one.events.IsSet(api.Event_START_CONTAINER) {
			continue
		}
		pod, msg := podMessage(c.Pod), withStatus(p.description(c), c.Status)
		change := &api.StateChangeEvent{Event: api.Event_START_CONTAINER, Pod: pod, Container: msg}
		if _, err := ask(ctx, one, api.Event_START_CONTAINER, &api.StartContainerRequest{Pod: pod, Container: msg},
			orStateChange(one, change, one.service.StartContainer)); err != nil {
			return err
		}
	}
	return nil
}

// Update lets the plugins change the limits that are to be set for a container. It returns what to set, and then, which
// must be called with the outcome once nothing of c is locked, also after an error. If there was none, then
// makes the updates of other containers that the plugins ask for. It returns the error.
func (p *Plugins) Update(
	ctx context.Context, c record.ContainerView, r *cri.LinuxContainerResources,
) (_ Resources, then func(context.Context, error) error, _ error) {
	then = func(_ context.Context, err error) error { return err }
	plugins := p.joined()
	if len(plugins) == 0 {
		return Resources{CRI: r}, then, nil
	}
	m := &merge{}
	a, err := m.adaptation(p, plugins)
	if err != nil {
		return Resources{}, then, err
	}
	reply, err := a.UpdateContainer(ctx, &api.UpdateContainerRequest{
		Pod: podMessage(c.Pod), Container: withStatus(p.description(c), c.Status), LinuxResources: resourcesMessage(r),
	})
	if err != nil {
		m.endTurn()
		return Resources{}, then, m.refusal(err)
	}
	own, others, err := splitUpdates(c.ID, r, reply.GetUpdate())
	return own, func(ctx context.Context, err error) error {
		if err != nil {
			m.endTurn()
			return err
		}
		p.evict(m.evict)
		return m.updateInTurn(ctx, p, others)
	}, err
}

// splitUpdates returns the limits of container id, for which r was asked, and the updates of the others.
func splitUpdates(
	id string, r *cri.LinuxContainerResources, list []*api.ContainerUpdate,
) (own Resources, others []*api.ContainerUpdate, _ error) {
	own = Resources{CRI: r}
	for _, u := range list {
		switch {
		case u == nil: // the library's, of a container that no plugin changed
		case u.GetContainerId() != id:
			others = append(others, u)
		default:
			changed, err := splitUpdate(u)
			if err != nil {
				return Resources{}, nil, fmt.Errorf("NRI plugins update the container: %w", err)
			}
			own = Resources{CRI: convert.MergeResources(r, changed.CRI), Rest: changed.Rest}
		}
	}
	return own, others, nil
}
