package nri

import (
	"context"

	"github.com/containerd/nri/pkg/api"

	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/record"
)

// PostPod sends an event of a pod to the plugins. It does not wait for them. The start of a pod is RunPod.
func (p *Plugins) PostPod(t lifecycle.EventType, pod record.PodView) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.pods[pod.ID]
	if o == nil || t != lifecycle.Stopped && t != lifecycle.Deleted {
		return
	}
	for _, one := range p.plugins {
		if !o.stopped { // also if it was removed without having been ready
			one.postPod(api.Event_STOP_POD_SANDBOX, pod)
		}
		if t == lifecycle.Deleted {
			one.postPod(api.Event_REMOVE_POD_SANDBOX, pod)
		}
	}
	o.stopped = true
	if t == lifecycle.Deleted {
		delete(p.pods, pod.ID)
	}
}

// PostPodUpdate tells the plugins that the limits of a pod were set.
func (p *Plugins) PostPodUpdate(pod record.PodView) {
	for _, one := range p.joined() {
		one.postPod(api.Event_POST_UPDATE_POD_SANDBOX, pod)
	}
}

// PostContainer sends an event of a container to the plugins. It does not wait for them: updates in their answers to a
// container's stop are made later.
func (p *Plugins) PostContainer(t lifecycle.EventType, c record.ContainerView) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.containers[c.ID]
	if o == nil {
		return
	}
	for _, one := range p.plugins {
		switch t {
		case lifecycle.Created:
			p.postContainer(one, api.Event_POST_CREATE_CONTAINER, c, o.message)
		case lifecycle.Started:
			p.postContainer(one, api.Event_POST_START_CONTAINER, c, o.message)
		case lifecycle.Stopped, lifecycle.Deleted:
			if !o.stopped { // also if its creation failed: plugins free its resources
				p.postContainer(one, api.Event_STOP_CONTAINER, c, o.message)
			}
		}
		if t == lifecycle.Deleted {
			p.postContainer(one, api.Event_REMOVE_CONTAINER, c, o.message)
		}
	}
	if t == lifecycle.Created {
		p.endCreation(c.ID, o)
	}
	o.stopped = o.stopped || t == lifecycle.Stopped || t == lifecycle.Deleted
	if t == lifecycle.Deleted {
		delete(p.containers, c.ID)
	}
}

// PostContainerUpdate tells the plugins that limits of a container were set, which are in its status.
func (p *Plugins) PostContainerUpdate(c record.ContainerView) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.containers[c.ID]
	if o == nil {
		return
	}
	if r := resourcesMessage(c.Status.Resources); o.message != nil && r != nil {
		o.message = withResources(o.message, r)
	}
	for _, one := range p.plugins {
		p.postContainer(one, api.Event_POST_UPDATE_CONTAINER, c, o.message)
	}
}

func (p *plugin) postPod(e api.Event, pod record.PodView) {
	if !p.events.IsSet(e) {
		return
	}
	p.post(e.PrettyName(), func(ctx context.Context) error {
		if p.vanished[pod.ID] {
			return nil
		}
		msg := podMessage(pod)
		change := &api.StateChangeEvent{Event: e, Pod: msg}
		var err error
		switch e {
		case api.Event_STOP_POD_SANDBOX:
			_, err = orStateChange(p, change, p.service.StopPodSandbox)(ctx, &api.StopPodSandboxRequest{Pod: msg})
		case api.Event_REMOVE_POD_SANDBOX:
			_, err = orStateChange(p, change, p.service.RemovePodSandbox)(ctx, &api.RemovePodSandboxRequest{Pod: msg})
		default:
			request := &api.PostUpdatePodSandboxRequest{Pod: msg}
			_, err = orStateChange(p, change, p.service.PostUpdatePodSandbox)(ctx, request)
		}
		return err
	})
}

// postContainer puts an event into the plugin's queue. Known describes the container, nil if that has to be found out.
func (p *Plugins) postContainer(one *plugin, e api.Event, c record.ContainerView, known *api.Container) {
	if !one.events.IsSet(e) {
		return
	}
	one.post(e.PrettyName(), func(ctx context.Context) error {
		if one.vanished[c.ID] {
			return nil
		}
		if known == nil {
			known = p.description(c)
		}
		return p.tell(ctx, one, e, podMessage(c.Pod), withStatus(known, c.Status))
	})
}

func (p *Plugins) tell(ctx context.Context, one *plugin, e api.Event, pod *api.PodSandbox, c *api.Container) error {
	change := &api.StateChangeEvent{Event: e, Pod: pod, Container: c}
	var err error
	switch s := one.service; e {
	case api.Event_POST_CREATE_CONTAINER:
		request := &api.PostCreateContainerRequest{Pod: pod, Container: c}
		_, err = orStateChange(one, change, s.PostCreateContainer)(ctx, request)
	case api.Event_POST_START_CONTAINER:
		request := &api.PostStartContainerRequest{Pod: pod, Container: c}
		_, err = orStateChange(one, change, s.PostStartContainer)(ctx, request)
	case api.Event_POST_UPDATE_CONTAINER:
		request := &api.PostUpdateContainerRequest{Pod: pod, Container: c}
		_, err = orStateChange(one, change, s.PostUpdateContainer)(ctx, request)
	case api.Event_REMOVE_CONTAINER:
		_, err = orStateChange(one, change, s.RemoveContainer)(ctx, &api.RemoveContainerRequest{Pod: pod, Container: c})
	case api.Event_STOP_CONTAINER:
		var reply *api.StopContainerResponse
		reply, err = s.StopContainer(ctx, &api.StopContainerRequest{Pod: pod, Container: c})
		p.later(one, reply.GetUpdate())
	}
	return err
}

// later makes updates after those that the plugin asked for before.
func (p *Plugins) later(one *plugin, list []*api.ContainerUpdate) {
	if len(list) == 0 {
		return
	}
	one.enqueueUpdate(func() { _, _ = p.update(context.Background(), list) }) // it has logged the errors
}
