package nri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/record"
)

// TestLifeOfAPod: the plugin is told of everything, in order, once.
func TestLifeOfAPod(t *testing.T) {
	n := newNode(t, nil, nil)
	p := n.connect(t, &testPlugin{})
	pod := newPod("p1")
	c := newCreation("c1")
	live(t, n, pod, c)
	want := []string{
		"RunPodSandbox p1", "CreateContainer c1", "PostCreateContainer c1", "StartContainer c1", "PostStartContainer c1",
		"UpdateContainer c1", "PostUpdateContainer c1", "UpdatePodSandbox p1", "PostUpdatePodSandbox p1",
		"StopContainer c1", "RemoveContainer c1", "StopPodSandbox p1", "RemovePodSandbox p1",
	}
	p.awaitTold(t, want...)
	got := p.seen["StopContainer c1"]
	if got.GetState() != api.ContainerState_CONTAINER_STOPPED || got.GetExitCode() != 3 || got.GetName() != "main" ||
		!slices.Equal(got.GetEnv(), []string{"PATH=/bin", "KEEP=1"}) ||
		got.GetLinux().GetResources().GetCpu().GetShares().GetValue() != 7 {
		t.Errorf("the stopped container is %v, want its exit code, its config.json and its new limits", got)
	}
}

func live(t *testing.T, n *node, pod record.PodView, c Creation) {
	t.Helper()
	one := c.Container
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(n.RunPod(t.Context(), pod))
	_, err := n.Create(t.Context(), c)
	must(err)
	one.Status.State = record.ContainerCreated
	n.PostContainer(lifecycle.Created, one)
	must(n.Start(t.Context(), one))
	one.Status.State = record.ContainerRunning
	n.PostContainer(lifecycle.Started, one)
	limits, then, err := n.Update(t.Context(), one, &cri.LinuxContainerResources{CpuShares: 7})
	must(err)
	must(then(t.Context(), nil))
	one.Status.Resources = limits.CRI
	n.PostContainerUpdate(one)
	must(n.UpdatePod(t.Context(), pod, nil, nil))
	n.PostPodUpdate(pod)
	one.Status.State, one.Status.ExitCode = record.ContainerExited, 3
	n.PostContainer(lifecycle.Stopped, one)
	n.PostContainer(lifecycle.Deleted, one)
	n.PostPod(lifecycle.Stopped, pod)
	n.PostPod(lifecycle.Stopped, pod) // a repeated stop
	n.PostPod(lifecycle.Deleted, pod)
}

// TestFailedCreationIsReported: plugins free what they gave the container.
func TestFailedCreationIsReported(t *testing.T) {
	n := newNode(t, nil, nil)
	p := n.connect(t, &testPlugin{})
	c := newCreation("c1")
	if _, err := n.Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	n.PostContainer(lifecycle.Deleted, c.Container)
	p.awaitTold(t, "CreateContainer c1", "StopContainer c1", "RemoveContainer c1")
}

// TestConflict: two plugins that change the same field refuse the container, and the library says which.
func TestConflict(t *testing.T) {
	n := newNode(t, nil, nil)
	for i, name := range []string{"one", "two"} {
		n.connect(t, &testPlugin{
			index: fmt.Sprintf("%d%d", i, i), name: name,
			create: adjusting(func(a *api.ContainerAdjustment) { a.AddEnv("BOTH", name) }),
		})
	}
	_, err := n.Create(t.Context(), newCreation("c1"))
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "00-one") ||
		!strings.Contains(err.Error(), "11-two") {
		t.Errorf("Create = %v, want a failed precondition that names both plugins", err)
	}
}

// TestPluginsSeeEachOther: a plugin is asked after those of lower index, and sees what they changed.
func TestPluginsSeeEachOther(t *testing.T) {
	n := newNode(t, nil, nil)
	second := n.connect(t, &testPlugin{index: "20", name: "second", create: adjusting(func(a *api.ContainerAdjustment) {
		a.RemoveEnv("FIRST")
	})})
	n.connect(t, &testPlugin{index: "10", name: "first", create: adjusting(func(a *api.ContainerAdjustment) {
		a.AddEnv("FIRST", "1")
	})})
	if s := n.Status().Plugins; len(s) != 2 || s[0].Name != "10-first" || s[1].Name != "20-second" {
		t.Errorf("plugins = %+v, want 10-first before 20-second", s)
	}
	c := newCreation("c1")
	if _, err := n.Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if env := second.seen["CreateContainer c1"].GetEnv(); !slices.Contains(env, "FIRST=1") {
		t.Errorf("the second plugin saw %q, want the variable of the first", env)
	}
	if slices.Contains(c.Spec.Process.Env, "FIRST=1") {
		t.Errorf("environment = %q, want what the second plugin removed to be gone", c.Spec.Process.Env)
	}
}

// TestUpdatesOfOthers: what plugins ask for other containers is done, and how it fails is theirs to say.
func TestUpdatesOfOthers(t *testing.T) {
	shares := func(id string, n uint64, ignore bool) []*api.ContainerUpdate {
		u := &api.ContainerUpdate{ContainerId: id, IgnoreFailure: ignore}
		u.SetLinuxCPUShares(n)
		return []*api.ContainerUpdate{u}
	}
	t.Run("at a creation", func(t *testing.T) {
		for _, ignore := range []bool{false, true} {
			n := newNode(t, nil, nil)
			n.engine.update = func(string, Resources) error { return errors.New("no") }
			n.connect(t, &testPlugin{create: func(*api.PodSandbox, *api.Container) (
				*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
				return nil, shares("c0", 5, ignore), nil
			}})
			_, err := n.Create(t.Context(), newCreation("c1"))
			if got := n.engine.updated(); (err == nil) != ignore || !slices.Equal(got, []string{"c0 shares=5"}) {
				t.Errorf("ignore failure %v: Create = %v, updates %q, want one of c0", ignore, err, got)
			}
		}
	})
	t.Run("at a stop", func(t *testing.T) {
		n := newNode(t, nil, nil)
		n.connect(t, &testPlugin{stop: func(*api.Container) []*api.ContainerUpdate { return shares("c0", 6, false) }})
		n.announceContainer("c1")
		n.PostContainer(lifecycle.Stopped, newContainer("c1", newPod("p1")))
		waitFor(t, "the update", func() bool { return slices.Equal(n.engine.updated(), []string{"c0 shares=6"}) })
	})
	t.Run("at an update", func(t *testing.T) {
		n := newNode(t, nil, nil)
		n.connect(t, &testPlugin{update: func(c *api.Container, r *api.LinuxResources) []*api.ContainerUpdate {
			own := shares(c.GetId(), r.GetCpu().GetShares().GetValue()+1, false)
			return append(own, shares("c0", 9, false)...)
		}})
		asked := &cri.LinuxContainerResources{CpuShares: 7}
		limits, then, err := n.Update(t.Context(), newContainer("c1", newPod("p1")), asked)
		if done := n.engine.updated(); err != nil || limits.CRI.GetCpuShares() != 8 || len(done) != 0 {
			t.Errorf("Update = %v, %v, updates %q, want 8 shares, and the other container later", limits, err, done)
		}
		if err := then(t.Context(), nil); err != nil || !slices.Equal(n.engine.updated(), []string{"c0 shares=9"}) {
			t.Errorf("then = %v, updates %q, want one of c0", err, n.engine.updated())
		}
	})
	t.Run("unsolicited", func(t *testing.T) {
		n := newNode(t, nil, nil)
		n.engine.update = func(id string, _ Resources) error {
			if id == "gone" {
				return errors.New("no such container")
			}
			return nil
		}
		p := n.connect(t, &testPlugin{})
		failed, err := p.stub.UpdateContainers(append(shares("c0", 3, false), shares("gone", 4, false)...))
		if err != nil || len(failed) != 1 || failed[0].GetContainerId() != "gone" {
			t.Errorf("UpdateContainers = %v, %v, want the failure of one", failed, err)
		}
	})
}

// TestValidator: NRI's default validator refuses what the configuration names, and a plugin what it wants.
func TestValidator(t *testing.T) {
	hooks := adjusting(func(a *api.ContainerAdjustment) { a.AddHooks(&api.Hooks{Poststop: []*api.Hook{{Path: "/x"}}}) })
	for _, tt := range []struct {
		name      string
		validator Validator
		plugin    *testPlugin
		want      string
	}{
		{"hooks", Validator{Enable: true, RejectOCIHookAdjustment: true}, &testPlugin{create: hooks}, "hook"},
		{"hooks that are allowed", Validator{Enable: true}, &testPlugin{create: hooks}, ""},
		{"off", Validator{RejectOCIHookAdjustment: true}, &testPlugin{create: hooks}, ""},
		{"plugin that refuses", Validator{}, &testPlugin{create: hooks, validate: func() error {
			return errors.New("not with me")
		}}, "not with me"},
		{"plugin that allows", Validator{}, &testPlugin{create: hooks, validate: func() error { return nil }}, ""},
		{"missing plugin", Validator{Enable: true, RequiredPlugins: []string{"absent"}}, nil, "absent"},
		{"present plugin", Validator{Enable: true, RequiredPlugins: []string{"test"}}, &testPlugin{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, nil, func(c *Config) { c.Validator = tt.validator })
			if tt.plugin != nil {
				n.connect(t, tt.plugin)
			}
			_, err := n.Create(t.Context(), newCreation("c1"))
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Create = %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// TestSynchronize: 200 pods in less than a second, in parts if they do not fit one message, with what is running.
func TestSynchronize(t *testing.T) {
	for _, size := range []int{10, 100_000} {
		engine := newFakeEngine()
		var want []string
		for i := range 200 {
			c := newContainer(fmt.Sprintf("c%03d", i), newPod(fmt.Sprintf("p%03d", i)))
			c.Config.Annotations = map[string]string{"large": strings.Repeat("x", size)}
			engine.put(c)
			want = append(want, "sync "+c.ID, "sync "+c.Pod.ID)
		}
		unfinished := newContainer("c-creating", newPod("p000")) // interrupted by the end of podd
		unfinished.Status.State = record.ContainerCreating
		unfinished.Pod = newPod("p-creating")
		unfinished.Pod.Status.State = record.PodCreating
		engine.put(unfinished)
		n := newNode(t, engine, nil)
		start := time.Now()
		p := n.connect(t, &testPlugin{})
		if took := time.Since(start); took > 10*time.Second && size < 1000 {
			t.Errorf("the synchronisation of 200 pods took %v, want less than 10 s", took)
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(p.list()))); diff != "" {
			t.Errorf("synchronised with (-want +got):\n%s", diff)
		}
	}
}

// TestReconnecting: while pods come and go, each connection of a plugin knows of every pod and container by its
// synchronisation or by its creation, never by both, and is told of its end once.
func TestReconnecting(t *testing.T) {
	engine := newFakeEngine()
	n := newNode(t, engine, nil)
	stop := make(chan struct{})
	var churn sync.WaitGroup
	for worker := range 4 {
		churn.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				comeAndGo(t, n, newPod(fmt.Sprintf("w%d-%d-pod", worker, i)), fmt.Sprintf("w%d-%d", worker, i))
			}
		})
	}
	var plugins []*testPlugin
	for range 20 {
		p := n.connect(t, &testPlugin{})
		plugins = append(plugins, p)
		time.Sleep(10 * time.Millisecond)
		if len(plugins) < 20 {
			p.stub.Stop()
		}
	}
	close(stop)
	churn.Wait()
	last := plugins[len(plugins)-1]
	waitFor(t, "the last events", func() bool { return len(checkKnown(last.list(), true)) == 0 })
	for i, p := range plugins {
		if problems := checkKnown(p.list(), i == len(plugins)-1); len(problems) > 0 {
			t.Errorf("connection %d: %q", i, problems)
		}
	}
}

// comeAndGo is the life of a pod with a container.
func comeAndGo(t *testing.T, n *node, pod record.PodView, id string) {
	c := newCreation(id)
	c.Container.Pod = pod
	n.engine.put(c.Container)
	if err := n.RunPod(context.Background(), pod); err != nil {
		t.Errorf("RunPod = %v", err)
	}
	if _, err := n.Create(context.Background(), c); err != nil {
		t.Errorf("Create = %v", err)
	}
	c.Container.Status.State = record.ContainerRunning
	n.engine.put(c.Container)
	n.PostContainer(lifecycle.Started, c.Container)
	n.engine.drop(c.Container)
	n.PostContainer(lifecycle.Deleted, c.Container)
	n.PostPod(lifecycle.Stopped, pod)
	n.PostPod(lifecycle.Deleted, pod)
}

// checkKnown returns what is wrong with the events of a connection. At the end of the last one no container is left.
func checkKnown(told []string, last bool) (problems []string) {
	known := map[string]int{}
	for _, line := range told {
		verb, id, _ := strings.Cut(line, " ")
		if !strings.HasPrefix(id, "w") {
			continue
		}
		switch verb {
		case "sync", "RunPodSandbox", "CreateContainer":
			if known[id]++; known[id] > 1 {
				problems = append(problems, "known twice: "+line)
			}
		case "RemoveContainer", "RemovePodSandbox":
			if known[id]--; known[id] < 0 {
				problems = append(problems, "removed, but not known: "+line)
			}
		}
	}
	for id, n := range maps.All(known) {
		if last && n > 0 {
			problems = append(problems, "never removed: "+id)
		}
	}
	return problems
}

// TestEvictionAtOnce: a plugin's own request waits until the plugin has joined.
func TestEvictionAtOnce(t *testing.T) {
	n := newNode(t, nil, nil)
	n.announceContainer("c0")
	p := &oldPlugin{}
	answer := make(chan error, 1)
	p.configured = func() {
		go func() {
			_, err := p.runtime.UpdateContainers(context.Background(), &api.UpdateContainersRequest{
				Evict: []*api.ContainerEviction{{ContainerId: "c0", Reason: "test"}},
			})
			answer <- err
		}()
		time.Sleep(50 * time.Millisecond) // podd has the request before it knows that the plugin is configured
	}
	p.connect(t, n)
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	if id := <-n.engine.evicted; id != "c0" {
		t.Errorf("evicted %s, want c0", id)
	}
}

// TestEviction: a plugin has a container stopped, at its creation, at an update of it or by itself.
func TestEviction(t *testing.T) {
	list := []*api.ContainerEviction{{ContainerId: "c0", Reason: "test"}}
	for _, tt := range []struct {
		name string
		do   func(n *node, p *oldPlugin) error
	}{
		{"at a creation", func(n *node, _ *oldPlugin) error {
			_, err := n.Create(t.Context(), newCreation("c1"))
			return err
		}},
		{"at an update", func(n *node, _ *oldPlugin) error {
			_, then, err := n.Update(t.Context(), newContainer("c1", newPod("p1")), &cri.LinuxContainerResources{CpuShares: 7})
			return then(t.Context(), err)
		}},
		{"by itself", func(_ *node, p *oldPlugin) error {
			_, err := p.runtime.UpdateContainers(t.Context(), &api.UpdateContainersRequest{Evict: list})
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, nil, nil)
			n.announceContainer("c0")
			p := &oldPlugin{evict: list}
			p.connect(t, n)
			waitFor(t, "the plugin to join", func() bool { return len(n.Status().Plugins) == 1 })
			if err := tt.do(n, p); err != nil {
				t.Fatal(err)
			}
			select {
			case id := <-n.engine.evicted:
				if id != "c0" {
					t.Errorf("evicted %s, want c0", id)
				}
			case <-time.After(5 * time.Second):
				t.Error("nothing was evicted")
			}
		})
	}
}

// TestEvictionsAreBounded: however many evictions a plugin asks for, a few containers are stopped at a time, each once,
// and what names no container costs nothing.
func TestEvictionsAreBounded(t *testing.T) {
	const containers = 20
	n := newNode(t, nil, nil)
	proceed := make(chan struct{})
	n.engine.evict = func() { <-proceed }
	var list []*api.ContainerEviction
	for i := range 100_000 {
		id := fmt.Sprintf("c%d", i%containers)
		if i%2 == 1 {
			id = fmt.Sprintf("absent%d", i)
		}
		list = append(list, &api.ContainerEviction{ContainerId: id, Reason: strings.Repeat("x", 2*maxReason)})
	}
	for i := range containers {
		n.announceContainer(fmt.Sprintf("c%d", i))
	}
	before := runtime.NumGoroutine()
	n.Plugins.evict(list)
	n.Plugins.evict(list)
	if more := runtime.NumGoroutine() - before; more > maxEvictors {
		t.Errorf("%d goroutines for evictions, want at most %d", more, maxEvictors)
	}
	waitFor(t, "the first evictions", func() bool { return n.engine.evicting.Load() == maxEvictors })
	n.mu.Lock()
	waiting := len(n.evictions)
	if waiting > 0 && len(n.evictions[0].reason) != maxReason {
		t.Errorf("a reason of %d bytes waits, want %d", len(n.evictions[0].reason), maxReason)
	}
	n.mu.Unlock()
	if want := containers/2 - maxEvictors; waiting != want {
		t.Errorf("%d evictions wait, want %d: each container once", waiting, want)
	}
	close(proceed)
	got := map[string]int{}
	for range containers / 2 {
		got[<-n.engine.evicted]++
	}
	if len(got) != containers/2 {
		t.Errorf("evicted %v, want %d containers", got, containers/2)
	}
	waitFor(t, "the workers to end", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.evictors == 0 })
	n.Plugins.evict(list[:1])
	if id := <-n.engine.evicted; id != "c0" {
		t.Errorf("evicted %s, want c0 again", id)
	}
}
