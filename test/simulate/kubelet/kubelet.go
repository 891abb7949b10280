// Package kubelet is a model of the kubelet: it calls a runtime through CRI as the real one does. It runs the pods that
// are wanted, probes, retries, lists, collects the dead ones, and forgets everything but its wishes when it restarts.
// test/simulate plays it in virtual time, test/integration against a real podd.
package kubelet

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	ready   = cri.PodSandboxState_SANDBOX_READY
	running = cri.ContainerState_CONTAINER_RUNNING
	exited  = cri.ContainerState_CONTAINER_EXITED
)

// World is where a kubelet lives.
type World interface {
	// Roll returns the random numbers of an event.
	Roll(key string) *rand.Rand
	// Pause waits for about d; it returns false if ctx ended before.
	Pause(ctx context.Context, key string, d time.Duration) bool
	Log(format string, args ...any)
	// IsFaulty is false once all faults have ended, May if those of a kind do not happen.
	IsFaulty() bool
	May(kind string) bool
	// Runtime returns the runtime that serves, nil if there is none.
	Runtime() Runtime
	// Told notes what the kubelet was told by an answer, or asked for.
	Told(What, Object)
}

// Roll returns the random numbers of the nth event of a key: they follow from the seed.
func Roll(seed uint64, key string, nth uint64) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, key, "#", nth)
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// Client calls a runtime.
type Client = cri.RuntimeServiceClient

// Runtime is a runtime until it ends.
type Runtime interface {
	// Call makes a call that may take up to timeout. what names it in logs.
	Call(timeout time.Duration, what string, f func(context.Context, Client) error) error
	// List makes a call that is answered from memory, at once.
	List(f func(context.Context, Client) error) error
}

// What is a fact about a pod or container.
type What int

// The facts: a caller has the id; a stop or removal is requested, or answered.
const (
	Known What = iota
	Stopping
	Stopped
	Removing
	Removed
)

// Object is a pod sandbox or container. Name and Attempt are set for a pod that is Known.
type Object struct {
	ID, Name string
	Attempt  uint32
}

// Config configures a kubelet.
type Config struct {
	Timeout time.Duration // of most calls
	Pods    int           // how many are wanted at most
	Change  time.Duration // the longest time between two changes of what is wanted
	// Wish returns the i-th pod.
	Wish func(i int) *Wish
}

// Kubelet wants pods. It has one worker for each, which acts on what the runtime lists.
type Kubelet struct {
	w   World
	cfg Config

	mu     sync.Mutex
	wishes map[string]*Wish // by name of the pod
}

// New returns a kubelet that wants nothing yet.
func New(w World, cfg Config) *Kubelet {
	return &Kubelet{w: w, cfg: cfg, wishes: map[string]*Wish{}}
}

// Change adds and deletes pods until ctx ends.
func (k *Kubelet) Change(ctx context.Context) {
	for i := 0; ; i++ {
		r := k.w.Roll("change")
		k.mu.Lock()
		names := slices.DeleteFunc(k.namesLocked(), func(name string) bool { return k.wishes[name].deleted })
		if len(names) < min(2, k.cfg.Pods) || r.IntN(2) == 0 && len(names) < k.cfg.Pods {
			p := k.cfg.Wish(i)
			k.wishes[p.name()] = p
			k.w.Log("wish: %s", p.name())
		} else {
			p := k.wishes[names[r.IntN(len(names))]]
			p.deleted = true
			k.w.Log("wish: %s is deleted", p.name())
		}
		k.mu.Unlock()
		if !k.w.Pause(ctx, "change", time.Duration(1+r.IntN(40))*(k.cfg.Change/40)) {
			return
		}
	}
}

// WantNothing deletes all wishes.
func (k *Kubelet) WantNothing() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.wishes {
		p.deleted = true
	}
}

// GiveUp requests a pod and gives up before the answer. It does not ask again.
func (k *Kubelet) GiveUp() {
	config := clone(k.cfg.Wish(-1).Config)
	k.call(context.Background(), 20*time.Millisecond, "RunPodSandbox, given up",
		func(ctx context.Context, client Client) error {
			_, err := client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
			return err
		})
}

func (k *Kubelet) namesLocked() (names []string) {
	for name := range k.wishes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Run is the kubelet, with restarts of it, until ctx ends.
func (k *Kubelet) Run(ctx context.Context) {
	for ctx.Err() == nil {
		r := k.w.Roll("kubelet")
		life := time.Duration(60+r.IntN(400)) * time.Second
		if !k.w.IsFaulty() {
			life = 100 * time.Hour
		}
		lived, end := context.WithTimeout(ctx, life+time.Duration(r.Int64N(int64(time.Millisecond))))
		k.w.Log("kubelet starts")
		var mains sync.WaitGroup
		mains.Go(func() { k.housekeep(lived) })
		mains.Go(func() { k.relist(lived) })
		working := map[string]bool{}
		for k.w.Pause(lived, "sync loop", 200*time.Millisecond) {
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
		k.w.Pause(ctx, "kubelet restarts", time.Duration(r.IntN(5000))*time.Millisecond)
	}
}

// call calls the runtime and returns false if it must be tried again later.
func (k *Kubelet) call(
	ctx context.Context, timeout time.Duration, what string, f func(context.Context, Client) error,
) bool {
	r := k.w.Runtime()
	return k.w.Pause(ctx, "request "+what, 0) && r != nil && r.Call(timeout, what, f) == nil
}

// work brings one pod to what is wanted until that is nothing, or ctx ends.
func (k *Kubelet) work(ctx context.Context, p *Wish) {
	for wait := time.Second; k.w.Pause(ctx, "worker "+p.name(), wait); {
		k.mu.Lock()
		deleted := p.deleted
		k.mu.Unlock()
		ok := false
		if deleted {
			if ok = k.end(ctx, p); ok {
				k.mu.Lock()
				delete(k.wishes, p.name())
				k.mu.Unlock()
				k.w.Log("worker: %s has ended", p.name())
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
func (k *Kubelet) pods(f *cri.PodSandboxFilter) (found []*cri.PodSandbox, ok bool) {
	ok = k.list(func(ctx context.Context, client Client) error {
		r, err := client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: f})
		found = r.GetItems()
		return err
	})
	return found, ok
}

// containers lists containers, oldest first.
func (k *Kubelet) containers(f *cri.ContainerFilter) (found []*cri.Container) {
	k.list(func(ctx context.Context, client Client) error {
		r, err := client.ListContainers(ctx, &cri.ListContainersRequest{Filter: f})
		found = r.GetContainers()
		return err
	})
	return found
}

// list makes a call that the runtime answers from memory, and reports whether it did.
func (k *Kubelet) list(f func(context.Context, Client) error) bool {
	r := k.w.Runtime()
	return r != nil && r.List(f) == nil
}

// sandboxes returns the pod sandboxes of p, newest first.
func (k *Kubelet) sandboxes(p *Wish) (found []*cri.PodSandbox, ok bool) {
	found, ok = k.pods(&cri.PodSandboxFilter{LabelSelector: p.Config.GetLabels()})
	slices.Reverse(found)
	return found, ok
}

// containersOf returns the containers of a pod sandbox that podd lists, oldest first.
func (k *Kubelet) containersOf(s *cri.PodSandbox) []*cri.Container {
	return k.containers(&cri.ContainerFilter{PodSandboxId: s.GetId()})
}

// Missing returns what is wanted and not there.
func (k *Kubelet) Missing() (names []string) {
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
		for _, config := range p.Containers {
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
