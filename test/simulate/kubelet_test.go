package simulate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/record"
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
		if len(names) < 2 || r.IntN(2) == 0 && len(names) < 5 {
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
		func(ctx context.Context, e *sandbox.Engine) error {
			_, err := e.RunPod(ctx, config, "")
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
	ctx context.Context, timeout time.Duration, what string, f func(context.Context, *sandbox.Engine) error,
) bool {
	p := k.n.podd()
	if !k.w.pause(ctx, "request "+k.w.rename(what), 0) || p == nil || p.isDead() {
		return false
	}
	k.w.log("request: %s", what)
	return p.client(timeout, k.w, what, func(ctx context.Context) error { return f(ctx, p.e) }) == nil
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

// sandboxes returns the pod sandboxes of p, newest first.
func (k *kubelet) sandboxes(p *wish) (found []*sandbox.Pod, ok bool) {
	podd := k.n.podd()
	if podd == nil {
		return nil, false
	}
	for _, s := range podd.e.Pods() {
		if s.Config.GetMetadata().GetName() == p.name {
			found = append(found, s)
		}
	}
	slices.Reverse(found)
	return found, true
}

// containersOf returns the containers of a pod sandbox that podd lists, oldest first.
func (k *kubelet) containersOf(s *sandbox.Pod) []*sandbox.Container {
	podd := k.n.podd()
	if podd == nil {
		return nil
	}
	return podd.e.ContainersOf(s)
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
		if len(all) == 0 || all[0].Status().State != record.PodReady {
			names = append(names, name)
			continue
		}
		for _, config := range p.containers {
			if !slices.ContainsFunc(k.containersOf(all[0]), func(c *sandbox.Container) bool {
				return c.Config.GetMetadata().GetName() == config.GetMetadata().GetName() &&
					containerRank(c.Status().State) >= containerRank(record.ContainerRunning)
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
	var ready *sandbox.Pod
	attempt := uint32(0)
	for _, s := range all {
		if s.Status().State == record.PodReady && ready == nil {
			ready = s
			continue
		}
		attempt = max(attempt, s.Config.GetMetadata().GetAttempt()+1)
	}
	stale := func() bool { // the kubelet acts on an old list
		return k.w.isFaulty() && k.w.roll("stale "+p.name).IntN(8) == 0
	}
	if ready == nil && len(all) > 0 && stale() {
		ready = all[0]
	}
	if ready == nil {
		for _, s := range all { // what is left of the last one
			if !k.stopPod(ctx, s.ID) {
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
		if !k.call(ctx, 2*k.timeout, what, func(ctx context.Context, e *sandbox.Engine) (err error) {
			id, err = e.RunPod(ctx, config, "")
			return err
		}) {
			return false
		}
		k.w.truth.podAnswered(id, p.name, attempt)
		return false // go on when it is listed
	}
	return k.syncContainers(ctx, p, ready)
}

func (k *kubelet) syncContainers(ctx context.Context, p *wish, s *sandbox.Pod) bool {
	ok := true
	for _, config := range p.containers {
		var last *sandbox.Container
		for _, c := range k.containersOf(s) {
			if c.Config.GetMetadata().GetName() == config.GetMetadata().GetName() {
				last = c
			}
		}
		attempt := uint32(0)
		if last != nil {
			state := last.Status().State
			if state == record.ContainerRunning {
				k.probe(ctx, last.ID)
				continue
			}
			if state == record.ContainerExited && !p.restart {
				continue
			}
			attempt = last.Config.GetMetadata().GetAttempt() + 1
		}
		ok = k.runContainer(ctx, s, config, attempt) && ok
	}
	return ok
}

func (k *kubelet) runContainer(ctx context.Context, s *sandbox.Pod, config *cri.ContainerConfig, attempt uint32) bool {
	config = clone(config)
	config.Metadata.Attempt = attempt
	var id string
	name := fmt.Sprintf("%s/%s.%d", s.ID, config.GetMetadata().GetName(), attempt)
	if !k.call(ctx, k.timeout, "CreateContainer "+name, func(ctx context.Context, e *sandbox.Engine) (err error) {
		id, err = e.CreateContainer(ctx, s.ID, config)
		return err
	}) {
		return false
	}
	k.w.truth.containerAnswered(id, s.ID)
	return k.call(ctx, k.timeout, "StartContainer "+name, func(ctx context.Context, e *sandbox.Engine) error {
		return e.StartContainer(ctx, id)
	})
}

// probe is a readiness probe.
func (k *kubelet) probe(ctx context.Context, id string) {
	k.call(ctx, 3*time.Second, "ExecSync in "+id, func(ctx context.Context, e *sandbox.Engine) error {
		_, err := e.ExecSync(ctx, id, []string{"true"}, time.Second)
		return err
	})
}

func (k *kubelet) stopPod(ctx context.Context, id string) bool {
	k.w.truth.stopping(id)
	if !k.call(ctx, k.timeout, "StopPodSandbox "+id, func(ctx context.Context, e *sandbox.Engine) error {
		return ignoreGone(e.StopPod(ctx, id))
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
			if c.Status().State != record.ContainerExited {
				stop := func(ctx context.Context, e *sandbox.Engine) error {
					return ignoreGone(e.StopContainer(ctx, c.ID, 2*time.Second))
				}
				ok = k.call(ctx, k.timeout+2*time.Second, "StopContainer "+c.ID, stop) && ok
			}
		}
		ok = k.stopPod(ctx, s.ID) && ok
	}
	return ok
}

// housekeep collects dead containers and pods, until ctx ends.
func (k *kubelet) housekeep(ctx context.Context) {
	for k.w.pause(ctx, "housekeeping", 7*time.Second) {
		podd := k.n.podd()
		if podd == nil {
			continue
		}
		for _, s := range podd.e.Pods() {
			m := s.Config.GetMetadata()
			k.mu.Lock()
			over := k.wishes[m.GetName()] == nil
			k.mu.Unlock()
			if over || s.Status().State != record.PodReady && k.superseded(s) {
				k.w.truth.removing(s.ID)
				k.w.truth.stopping(s.ID)
				if k.call(ctx, k.timeout, "RemovePodSandbox "+s.ID, func(ctx context.Context, e *sandbox.Engine) error {
					return ignoreGone(e.RemovePod(ctx, s.ID))
				}) {
					k.w.truth.removed(s.ID)
				}
				continue
			}
			k.removeDead(ctx, podd.e.ContainersOf(s))
		}
	}
}

// superseded reports whether there is a newer pod sandbox of the same pod.
func (k *kubelet) superseded(s *sandbox.Pod) bool {
	podd := k.n.podd()
	return podd != nil && slices.ContainsFunc(podd.e.Pods(), func(o *sandbox.Pod) bool {
		return o.Config.GetMetadata().GetName() == s.Config.GetMetadata().GetName() && o.CreatedAt.After(s.CreatedAt)
	})
}

// removeDead removes the exited containers of a pod but the last of each name.
func (k *kubelet) removeDead(ctx context.Context, all []*sandbox.Container) {
	for i, c := range all {
		newer := slices.ContainsFunc(all[i+1:], func(o *sandbox.Container) bool {
			return o.Config.GetMetadata().GetName() == c.Config.GetMetadata().GetName()
		})
		if state := c.Status().State; newer && (state == record.ContainerExited || state == record.ContainerCreated) {
			k.w.truth.removing(c.ID)
			if k.call(ctx, k.timeout, "RemoveContainer "+c.ID, func(ctx context.Context, e *sandbox.Engine) error {
				return ignoreGone(e.RemoveContainer(ctx, c.ID))
			}) {
				k.w.truth.removed(c.ID)
			}
		}
	}
}

// ignoreGone: the kubelet takes what does not exist for stopped and removed.
func ignoreGone(err error) error {
	if err != nil && strings.HasSuffix(err.Error(), "not found") {
		return nil
	}
	return err
}
