package kubelet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sync is the kubelet's SyncPod.
func (k *Kubelet) sync(ctx context.Context, p *Wish) bool {
	all, ok := k.sandboxes(p)
	if !ok {
		return false
	}
	var last *cri.PodSandbox // the one that is ready
	attempt := uint32(0)
	for _, s := range all {
		if s.GetState() == ready && last == nil {
			last = s
			continue
		}
		attempt = max(attempt, s.GetMetadata().GetAttempt()+1)
	}
	stale := func() bool { // the kubelet acts on an old list
		return k.w.May("stale") && k.w.Roll("stale "+p.name()).IntN(8) == 0
	}
	if last == nil && len(all) > 0 && stale() {
		last = all[0]
	}
	if last == nil {
		for _, s := range all { // what is left of the last one
			if !k.stopPod(ctx, s.GetId()) {
				return false
			}
		}
		if attempt > 0 && stale() {
			attempt--
		}
		config := clone(p.Config)
		config.Metadata.Attempt = attempt
		var id string
		what := fmt.Sprintf("RunPodSandbox %s.%d", p.name(), attempt)
		if !k.call(ctx, 2*k.cfg.Timeout, what, func(ctx context.Context, client Client) error {
			r, err := client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
			id = r.GetPodSandboxId()
			return err
		}) {
			return false
		}
		k.w.Told(Known, Object{ID: id, Name: p.name(), Attempt: attempt})
		return false // go on when it is listed
	}
	return k.syncContainers(ctx, p, last)
}

func (k *Kubelet) syncContainers(ctx context.Context, p *Wish, s *cri.PodSandbox) bool {
	ok := true
	for _, config := range p.Containers {
		var last *cri.Container
		for _, c := range k.containersOf(s) {
			if c.GetMetadata().GetName() == config.GetMetadata().GetName() {
				last = c
			}
		}
		attempt := uint32(0)
		if last != nil {
			if last.GetState() == running {
				k.probe(ctx, last.GetId())
				continue
			}
			if last.GetState() == exited && !p.Restart {
				continue
			}
			attempt = last.GetMetadata().GetAttempt() + 1
		}
		config = clone(config)
		config.Metadata.Attempt = attempt
		ok = k.runContainer(ctx, &cri.CreateContainerRequest{
			PodSandboxId: s.GetId(), Config: config, SandboxConfig: p.Config,
		}) && ok
	}
	return ok
}

func (k *Kubelet) runContainer(ctx context.Context, create *cri.CreateContainerRequest) bool {
	var id string
	m := create.GetConfig().GetMetadata()
	name := fmt.Sprintf("%s/%s.%d", create.GetPodSandboxId(), m.GetName(), m.GetAttempt())
	if !k.call(ctx, k.cfg.Timeout, "CreateContainer "+name, func(ctx context.Context, client Client) error {
		r, err := client.CreateContainer(ctx, create)
		id = r.GetContainerId()
		return err
	}) {
		return false
	}
	k.w.Told(Known, Object{ID: id})
	return k.call(ctx, k.cfg.Timeout, "StartContainer "+name, func(ctx context.Context, client Client) error {
		_, err := client.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: id})
		return err
	})
}

// probe is a readiness probe.
func (k *Kubelet) probe(ctx context.Context, id string) {
	k.call(ctx, 3*time.Second, "ExecSync in "+id, func(ctx context.Context, client Client) error {
		_, err := client.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: id, Cmd: []string{"true"}, Timeout: 1})
		return err
	})
}

func (k *Kubelet) stopPod(ctx context.Context, id string) bool {
	k.w.Told(Stopping, Object{ID: id})
	if !k.call(ctx, k.cfg.Timeout, "StopPodSandbox "+id, func(ctx context.Context, client Client) error {
		_, err := client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
		return err
	}) {
		return false
	}
	k.w.Told(Stopped, Object{ID: id})
	return true
}

// end kills the containers of a pod and stops it.
func (k *Kubelet) end(ctx context.Context, p *Wish) bool {
	all, ok := k.sandboxes(p)
	for _, s := range all {
		for _, c := range k.containersOf(s) {
			if c.GetState() != exited {
				stop := func(ctx context.Context, client Client) error {
					_, err := client.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: c.GetId(), Timeout: 2})
					return err
				}
				ok = k.call(ctx, k.cfg.Timeout+2*time.Second, "StopContainer "+c.GetId(), stop) && ok
			}
		}
		ok = k.stopPod(ctx, s.GetId()) && ok
	}
	return ok
}

// housekeep collects dead containers and pods, until ctx ends.
func (k *Kubelet) housekeep(ctx context.Context) {
	for k.w.Pause(ctx, "housekeeping", 7*time.Second) {
		all, _ := k.pods(nil)
		for _, s := range all {
			id := s.GetId()
			k.mu.Lock()
			over := k.wishes[s.GetMetadata().GetName()] == nil
			k.mu.Unlock()
			if over || s.GetState() != ready && k.superseded(s) {
				k.w.Told(Removing, Object{ID: id})
				k.w.Told(Stopping, Object{ID: id})
				if k.call(ctx, k.cfg.Timeout, "RemovePodSandbox "+id, func(ctx context.Context, client Client) error {
					_, err := client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
					return err
				}) {
					k.w.Told(Removed, Object{ID: id})
				}
				continue
			}
			k.removeDead(ctx, k.containersOf(s))
		}
	}
}

// relist lists all pods and containers, and reads the status of those that have changed, as PLEG does.
func (k *Kubelet) relist(ctx context.Context) {
	states := map[string]cri.ContainerState{}
	for k.w.Pause(ctx, "relist", time.Second) {
		k.pods(nil)
		for _, c := range k.containers(nil) {
			if state, known := states[c.GetId()]; known && state == c.GetState() {
				continue
			}
			states[c.GetId()] = c.GetState()
			k.list(func(ctx context.Context, client Client) error {
				_, err := client.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: c.GetId()})
				return err
			})
		}
	}
}

// superseded reports whether there is a newer pod sandbox of the same pod.
func (k *Kubelet) superseded(s *cri.PodSandbox) bool {
	all, _ := k.pods(&cri.PodSandboxFilter{LabelSelector: s.GetLabels()})
	return slices.ContainsFunc(all, func(o *cri.PodSandbox) bool { return o.GetCreatedAt() > s.GetCreatedAt() })
}

// removeDead removes the exited containers of a pod but the last of each name.
func (k *Kubelet) removeDead(ctx context.Context, all []*cri.Container) {
	for i, c := range all {
		newer := slices.ContainsFunc(all[i+1:], func(o *cri.Container) bool {
			return o.GetMetadata().GetName() == c.GetMetadata().GetName()
		})
		if id := c.GetId(); newer && (c.GetState() == exited || c.GetState() == cri.ContainerState_CONTAINER_CREATED) {
			k.w.Told(Removing, Object{ID: id})
			if k.call(ctx, k.cfg.Timeout, "RemoveContainer "+id, func(ctx context.Context, client Client) error {
				_, err := client.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: id})
				return err
			}) {
				k.w.Told(Removed, Object{ID: id})
			}
		}
	}
}

func clone[M proto.Message](m M) M { return proto.Clone(m).(M) }
