package nri

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"
)

// chunkBytes bounds one message of a synchronisation. The protocol's limit is 4 MiB.
const chunkBytes = 2 << 20

// synchronize sends a new plugin those of the given pods and containers that still exist, and makes the updates that it
// asks for.
func (p *Plugins) synchronize(ctx context.Context, one *plugin, pods, containers map[string]*object) error {
	podMessages, containerMessages := p.existing(pods, containers)
	one.vanished = map[string]bool{}
	for id := range pods {
		one.vanished[id] = true
	}
	for id := range containers {
		one.vanished[id] = true
	}
	for _, pod := range podMessages {
		delete(one.vanished, pod.GetId())
	}
	for _, c := range containerMessages {
		delete(one.vanished, c.GetId())
	}
	requests := chunks(podMessages, containerMessages)
	for i, r := range requests {
		reply, err := p.sendChunk(ctx, one, r)
		if err != nil {
			one.close(fmt.Errorf("synchronize: %w", err))
			return err
		}
		if i < len(requests)-1 && (!reply.GetMore() || len(reply.GetUpdate()) > 0) {
			err := fmt.Errorf("%w: the plugin does not support partial synchronization, and the state exceeds one message",
				errdefs.ErrFailedPrecondition)
			one.close(err)
			return err
		}
		p.later(one, reply.GetUpdate())
	}
	return nil
}

// sendChunk gives the plugin its time for each part.
func (p *Plugins) sendChunk(
	ctx context.Context, one *plugin, r *api.SynchronizeRequest,
) (*api.SynchronizeResponse, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), one.syncTimeout)
	defer cancel()
	return one.service.Synchronize(ctx, r)
}

// existing describes the pods and containers of the engine that are among the given ids.
func (p *Plugins) existing(pods, containers map[string]*object) ([]*api.PodSandbox, []*api.Container) {
	p.mu.Lock()
	engine := p.engine
	p.mu.Unlock()
	allPods, allContainers := engine.Existing()
	var podMessages []*api.PodSandbox
	for _, pod := range allPods {
		if pods[pod.ID] != nil {
			podMessages = append(podMessages, podMessage(pod))
		}
	}
	var containerMessages []*api.Container
	for _, c := range allContainers {
		if containers[c.ID] != nil {
			containerMessages = append(containerMessages, withStatus(p.description(c), c.Status))
		}
	}
	return podMessages, containerMessages
}

// chunks divides the messages into requests of at most chunkBytes, at least one. A message that is larger is alone.
func chunks(pods []*api.PodSandbox, containers []*api.Container) []*api.SynchronizeRequest {
	list := []*api.SynchronizeRequest{{}}
	size := 0
	next := func(m proto.Message) *api.SynchronizeRequest {
		n := proto.Size(m)
		if size > 0 && size+n > chunkBytes {
			list[len(list)-1].More = true
			list, size = append(list, &api.SynchronizeRequest{}), 0
		}
		size += n
		return list[len(list)-1]
	}
	for _, pod := range pods {
		r := next(pod)
		r.Pods = append(r.Pods, pod)
	}
	for _, c := range containers {
		r := next(c)
		r.Containers = append(r.Containers, c)
	}
	return list
}
