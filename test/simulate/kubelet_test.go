package simulate

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/ocitest"
)

const (
	ready   = cri.PodSandboxState_SANDBOX_READY
	running = cri.ContainerState_CONTAINER_RUNNING
	exited  = cri.ContainerState_CONTAINER_EXITED
)

// kubelet is a model of the kubelet: it wants pods, has one worker for each, which acts on what podd lists, and forgets
// everything but its wishes when it restarts.
type kubelet struct {
	w       *world
	n       *node
	timeout time.Duration // of most calls

	mu     sync.Mutex
	wishes map[string]*wish // by name of the pod
}

// wish is a pod that the API server has.
type wish struct {
	name       string
	deleted    bool // it is in wishes until its worker has ended it
	config     *cri.PodSandboxConfig
	containers []*cri.ContainerConfig
	restart    bool
}

// commands are those of containers: ocitest.Fake runs them.
var commands = [][]string{
	ocitest.Trap(143), ocitest.Trap(0), {"sleep", "100000"}, {"sleep", "17"}, {"sh", "-c", "exit 3"}, {"true"}, {"nope"},
}

// newWish returns a pod that follows from the seed.
func (w *world) newWish(i int) *wish {
	r := w.roll(fmt.Sprint("wish ", i))
	name := fmt.Sprint("p", i)
	options := &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}
	switch r.IntN(4) {
	case 0:
		options.Pid = cri.NamespaceMode_POD
	case 1:
		options.Network = cri.NamespaceMode_NODE
	}
	p := &wish{name: name, restart: r.IntN(3) > 0, config: &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name},
		Labels:   map[string]string{"io.kubernetes.pod.uid": "uid-" + name},
		Linux: &cri.LinuxPodSandboxConfig{
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: options},
		},
	}}
	for c := range 1 + r.IntN(2) {
		p.containers = append(p.containers, &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: string(rune('a' + c))}, Image: &cri.ImageSpec{Image: "busybox"},
			Command: commands[r.IntN(len(commands))],
			Linux: &cri.LinuxContainerConfig{
				SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: options},
			},
		})
	}
	return p
}

// change adds and deletes pods until ctx ends.
func (k *kubelet) change(ctx context.Context) {
	for i := 0; ; i++ {
		r := k.w.roll("change")
		k.mu.Lock()
		names := slices.DeleteFunc(k.namesLocked(), func(name string) bool { return k.wishes[name].deleted })
		if len(names) < min(2, *pods) || r.IntN(2) == 0 && len(names) < *pods {
			p := k.w.newWish(i)
			k.wishes[p.name] = p
			k.w.log("wish: %s", p.name)
		} else {
			p := k.wishes[names[r.IntN(len(names))]]
			p.deleted = true
			k.w.log("wish: %s is deleted", p.name)
		}
		k.mu.Unlock()
		if !k.w.pause(ctx, "change", time.Duration(1+r.IntN(40))*time.Second) {
			return
		}
	}
}

// wantNothing deletes all wishes.
func (k *kubelet) wantNothing() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.wishes {
		p.deleted = true
	}
}

// giveUp requests a pod and gives up before the answer. It does not ask again.
func (k *kubelet) giveUp() {
	config := clone(k.w.newWish(-1).config)
	k.call(context.Background(), 20*time.Millisecond, "RunPodSandbox, given up",
		func(ctx context.Context, podd cri.RuntimeServiceClient) error {
			_, err := podd.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
			return err
		})
}

func (k *kubelet) namesLocked() (names []string) {
	for name := range k.wishes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// run is the kubelet, with restarts of it, until ctx ends.
func (k *kubelet) run(ctx context.Context) {
	for ctx.Err() == nil {
		r := k.w.roll("kubelet")
		life := time.Duration(60+r.IntN(400)) * time.Second
		if !k.w.isFaulty() {
			life = 100 * time.Hour
		}
		lived, end := context.WithTimeout(ctx, life+jitter(r))
		k.w.log("kubelet starts")
		var mains sync.WaitGroup
		mains.Go(func() { k.housekeep(lived) })
		mains.Go(func() { k.relist(lived) })
		working := map[string]bool{}
		for k.w.pause(lived, "sync loop", 200*time.Millisecond) {
			k.mu.Lock()
			names := k.namesLocked()
			for _, name := range names {
				if p := k.wishes[name]; !working[name] {
					working[name] = true
					mains.Go(func() { k.work(lived, p) })
				}
			}
			k.mu.Unlock()
		}
		end()
		mains.Wait()
		k.w.pause(ctx, "kubelet restarts", time.Duration(r.IntN(5000))*time.Millisecond)
	}
}

// call calls podd and returns false if it must be tried again later.
func (k *kubelet) call(
	ctx context.Context, timeout time.Duration, what string, f func(context.Context, cri.RuntimeServiceClient) error,
) bool {
	p := k.n.podd()
	if !k.w.pause(ctx, "request "+k.w.rename(what), 0) || p == nil || p.isDead() {
		return false
	}
	k.w.log("request: %s", what)
	return p.client(timeout, k.w, what, func(ctx context.Context) error { return f(ctx, p.cri()) }) == nil
}

// work brings one pod to what is wanted until that is nothing, or ctx ends.
func (k *kubelet) work(ctx context.Context, p *wish) {
	for wait := time.Second; k.w.pause(ctx, "worker "+p.name, wait); {
		k.mu.Lock()
		deleted := p.deleted
		k.mu.Unlock()
		ok := false
		if deleted {
			if ok = k.end(ctx, p); ok {
				k.mu.Lock()
				delete(k.wishes, p.name)
				k.mu.Unlock()
				k.w.log("worker: %s has ended", p.name)
				return
			}
		} else {
			ok = k.sync(ctx, p)
		}
		if wait = 2 * time.Second; !ok {
			wait = 5 * time.Second
		}
	}
}

// pods lists pod sandboxes, oldest first.
func (k *kubelet) pods(f *cri.PodSandboxFilter) (found []*cri.PodSandbox, ok bool) {
	ok = k.list(func(ctx context.Context, podd cri.RuntimeServiceClient) error {
		r, err := podd.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: f})
		found = r.GetItems()
		return err
	})
	return found, ok
}

// containers lists containers, oldest first.
func (k *kubelet) containers(f *cri.ContainerFilter) (found []*cri.Container) {
	k.list(func(ctx context.Context, podd cri.RuntimeServiceClient) error {
		r, err := podd.ListContainers(ctx, &cri.ListContainersRequest{Filter: f})
		found = r.GetContainers()
		return err
	})
	return found
}

// list makes a call that podd answers from memory, and reports whether it did.
func (k *kubelet) list(f func(context.Context, cri.RuntimeServiceClient) error) bool {
	p, began := k.n.podd(), time.Now()
	if p == nil || p.isDead() {
		return false
	}
	err := f(p.conn, p.cri())
	if took := time.Since(began); err != nil || took > 0 {
		k.w.violated(ruleList, "after %v: %v", took, err)
	}
	return err == nil
}

// sandboxes returns the pod sandboxes of p, newest first.
func (k *kubelet) sandboxes(p *wish) (found []*cri.PodSandbox, ok bool) {
	found, ok = k.pods(&cri.PodSandboxFilter{LabelSelector: p.config.GetLabels()})
	slices.Reverse(found)
	return found, ok
}

// containersOf returns the containers of a pod sandbox that podd lists, oldest first.
func (k *kubelet) containersOf(s *cri.PodSandbox) []*cri.Container {
	return k.containers(&cri.ContainerFilter{PodSandboxId: s.GetId()})
}

// missing returns what is wanted and not there.
func (k *kubelet) missing() (names []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range k.namesLocked() {
		p := k.wishes[name]
		if p.deleted {
			continue
		}
		all, _ := k.sandboxes(p)
		if len(all) == 0 || all[0].GetState() != ready {
			names = append(names, name)
			continue
		}
		for _, config := range p.containers {
			if !slices.ContainsFunc(k.containersOf(all[0]), func(c *cri.Container) bool {
				return c.GetMetadata().GetName() == config.GetMetadata().GetName() &&
					(c.GetState() == running || c.GetState() == exited)
			}) {
				names = append(names, name+"/"+config.GetMetadata().GetName())
			}
		}
	}
	return names
}

// sync is the kubelet's SyncPod.
func (k *kubelet) sync(ctx context.Context, p *wish) bool {
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
		return k.w.may("stale") && k.w.roll("stale "+p.name).IntN(8) == 0
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
		config := clone(p.config)
		config.Metadata.Attempt = attempt
		var id string
		what := fmt.Sprintf("RunPodSandbox %s.%d", p.name, attempt)
		if !k.call(ctx, 2*k.timeout, what, func(ctx context.Context, podd cri.RuntimeServiceClient) error {
			r, err := podd.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
			id = r.GetPodSandboxId()
			return err
		}) {
			return false
		}
		k.w.truth.podAnswered(id, p.name, attempt)
		return false // go on when it is listed
	}
	return k.syncContainers(ctx, p, last)
}

func (k *kubelet) syncContainers(ctx context.Context, p *wish, s *cri.PodSandbox) bool {
	ok := true
	for _, config := range p.containers {
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
			if last.GetState() == exited && !p.restart {
				continue
			}
			attempt = last.GetMetadata().GetAttempt() + 1
		}
		config = clone(config)
		config.Metadata.Attempt = attempt
		ok = k.runContainer(ctx, &cri.CreateContainerRequest{
			PodSandboxId: s.GetId(), Config: config, SandboxConfig: p.config,
		}) && ok
	}
	return ok
}

func (k *kubelet) runContainer(ctx context.Context, create *cri.CreateContainerRequest) bool {
	var id string
	m := create.GetConfig().GetMetadata()
	name := fmt.Sprintf("%s/%s.%d", create.GetPodSandboxId(), m.GetName(), m.GetAttempt())
	if !k.call(ctx, k.timeout, "CreateContainer "+name, func(ctx context.Context, podd cri.RuntimeServiceClient) error {
		r, err := podd.CreateContainer(ctx, create)
		id = r.GetContainerId()
		return err
	}) {
		return false
	}
	k.w.truth.containerAnswered(id)
	return k.call(ctx, k.timeout, "StartContainer "+name, func(ctx context.Context, podd cri.RuntimeServiceClient) error {
		_, err := podd.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: id})
		return err
	})
}

// probe is a readiness probe.
func (k *kubelet) probe(ctx context.Context, id string) {
	k.call(ctx, 3*time.Second, "ExecSync in "+id, func(ctx context.Context, podd cri.RuntimeServiceClient) error {
		_, err := podd.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: id, Cmd: []string{"true"}, Timeout: 1})
		return err
	})
}

func (k *kubelet) stopPod(ctx context.Context, id string) bool {
	k.w.truth.stopping(id)
	if !k.call(ctx, k.timeout, "StopPodSandbox "+id, func(ctx context.Context, podd cri.RuntimeServiceClient) error {
		_, err := podd.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
		return err
	}) {
		return false
	}
	k.w.truth.stopped(id)
	return true
}

// end kills the containers of a pod and stops it.
func (k *kubelet) end(ctx context.Context, p *wish) bool {
	all, ok := k.sandboxes(p)
	for _, s := range all {
		for _, c := range k.containersOf(s) {
			if c.GetState() != exited {
				stop := func(ctx context.Context, podd cri.RuntimeServiceClient) error {
					_, err := podd.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: c.GetId(), Timeout: 2})
					return err
				}
				ok = k.call(ctx, k.timeout+2*time.Second, "StopContainer "+c.GetId(), stop) && ok
			}
		}
		ok = k.stopPod(ctx, s.GetId()) && ok
	}
	return ok
}

// housekeep collects dead containers and pods, until ctx ends.
func (k *kubelet) housekeep(ctx context.Context) {
	for k.w.pause(ctx, "housekeeping", 7*time.Second) {
		all, _ := k.pods(nil)
		for _, s := range all {
			id := s.GetId()
			k.mu.Lock()
			over := k.wishes[s.GetMetadata().GetName()] == nil
			k.mu.Unlock()
			if over || s.GetState() != ready && k.superseded(s) {
				k.w.truth.removing(id)
				k.w.truth.stopping(id)
				if k.call(ctx, k.timeout, "RemovePodSandbox "+id, func(ctx context.Context, podd cri.RuntimeServiceClient) error {
					_, err := podd.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
					return err
				}) {
					k.w.truth.removed(id)
				}
				continue
			}
			k.removeDead(ctx, k.containersOf(s))
		}
	}
}

// relist lists all pods and containers, and reads the status of those that have changed, as PLEG does.
func (k *kubelet) relist(ctx context.Context) {
	states := map[string]cri.ContainerState{}
	for k.w.pause(ctx, "relist", time.Second) {
		k.pods(nil)
		for _, c := range k.containers(nil) {
			if state, known := states[c.GetId()]; known && state == c.GetState() {
				continue
			}
			states[c.GetId()] = c.GetState()
			k.list(func(ctx context.Context, podd cri.RuntimeServiceClient) error {
				_, err := podd.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: c.GetId()})
				return err
			})
		}
	}
}

// superseded reports whether there is a newer pod sandbox of the same pod.
func (k *kubelet) superseded(s *cri.PodSandbox) bool {
	all, _ := k.pods(&cri.PodSandboxFilter{LabelSelector: s.GetLabels()})
	return slices.ContainsFunc(all, func(o *cri.PodSandbox) bool { return o.GetCreatedAt() > s.GetCreatedAt() })
}

// removeDead removes the exited containers of a pod but the last of each name.
func (k *kubelet) removeDead(ctx context.Context, all []*cri.Container) {
	for i, c := range all {
		newer := slices.ContainsFunc(all[i+1:], func(o *cri.Container) bool {
			return o.GetMetadata().GetName() == c.GetMetadata().GetName()
		})
		if id := c.GetId(); newer && (c.GetState() == exited || c.GetState() == cri.ContainerState_CONTAINER_CREATED) {
			k.w.truth.removing(id)
			if k.call(ctx, k.timeout, "RemoveContainer "+id, func(ctx context.Context, podd cri.RuntimeServiceClient) error {
				_, err := podd.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: id})
				return err
			}) {
				k.w.truth.removed(id)
			}
		}
	}
}
