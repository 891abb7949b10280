package nri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"google.golang.org/protobuf/encoding/prototext"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// observer is a plugin that notes what it is told. Containers get a variable and CPU shares.
type observer struct {
	stub   stub.Stub
	synced chan struct{}
	// update returns what to update when a container is created, nil for nothing.
	update func(id string) (shares uint64, others []*api.ContainerUpdate)

	mu    sync.Mutex
	told  []string // verb and id
	found map[string]*api.Container
}

// observe connects the plugin until the test ends, and returns how long it took until it was synchronised.
func (n *node) observe(p *observer) time.Duration {
	n.Helper()
	begin := time.Now()
	conn, err := net.Dial("unix", n.socket())
	n.must(err)
	p.synced, p.found = make(chan struct{}), map[string]*api.Container{}
	p.stub, err = stub.New(p, stub.WithConnection(conn), stub.WithPluginName("observer"), stub.WithPluginIdx("10"),
		stub.WithOnClose(func() {}), stub.WithLogger(quiet{}))
	n.must(err)
	n.must(p.stub.Start(n.Context()))
	n.Cleanup(p.stub.Stop)
	select {
	case <-p.synced:
	case <-time.After(20 * time.Second):
		n.Fatal("the plugin is not synchronised after 20 s")
	}
	return time.Since(begin)
}

// quiet drops what the library logs about each plugin.
type quiet struct{}

func (quiet) Debugf(context.Context, string, ...any) {}
func (quiet) Infof(context.Context, string, ...any)  {}
func (quiet) Warnf(context.Context, string, ...any)  {}
func (quiet) Errorf(context.Context, string, ...any) {}

func (p *observer) note(verb, id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, verb+" "+id)
	return nil
}

func (p *observer) list() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.told)
}

func (p *observer) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) (
	[]*api.ContainerUpdate, error,
) {
	defer close(p.synced)
	for _, pod := range pods {
		p.note("sync", pod.GetId())
	}
	for _, c := range containers {
		p.found[c.GetId()] = c
		p.note("sync", c.GetId())
	}
	return nil, nil
}

func (p *observer) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return p.note("RunPodSandbox", pod.GetId())
}

func (p *observer) StopPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return p.note("StopPodSandbox", pod.GetId())
}

func (p *observer) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return p.note("RemovePodSandbox", pod.GetId())
}

func (p *observer) CreateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) (
	*api.ContainerAdjustment, []*api.ContainerUpdate, error,
) {
	shares := uint64(555)
	var others []*api.ContainerUpdate
	if p.update != nil {
		shares, others = p.update(c.GetId())
	}
	a := &api.ContainerAdjustment{}
	a.AddEnv("NRI", "kept")
	a.SetLinuxCPUShares(shares)
	return a, others, p.note("CreateContainer", c.GetId())
}

func (p *observer) StartContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	return p.note("StartContainer", c.GetId())
}

func (p *observer) StopContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) (
	[]*api.ContainerUpdate, error,
) {
	return nil, p.note("StopContainer", c.GetId())
}

func (p *observer) RemoveContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	return p.note("RemoveContainer", c.GetId())
}

// runMany runs pods, some at a time.
func (n *node) runMany(prefix string, count, callers int) []pod {
	n.Helper()
	pods := make([]pod, count)
	next := make(chan int)
	var work sync.WaitGroup
	for range callers {
		work.Go(func() {
			for i := range next {
				var err error
				if pods[i], err = n.tryRun(fmt.Sprint(prefix, i), nil, nil); err != nil {
					n.Errorf("pod %d: %v", i, err)
				}
			}
		})
	}
	for i := range pods {
		next <- i
	}
	close(next)
	work.Wait()
	if n.Failed() {
		n.FailNow()
	}
	return pods
}

// TestManyPods: a plugin that connects is synchronised with 200 pods in less than a second, also after podd was killed.
// That loses no adjustment.
func TestManyPods(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("podd needs root")
	}
	n := start(t)
	n.observe(&observer{})
	pods := n.runMany("many-", 200, 8)
	before := n.adjusted(pods)
	for _, when := range []string{"while podd runs", "after podd was killed", "again"} {
		p := &observer{}
		took := n.observe(p)
		t.Logf("synchronisation with 200 pods %s: %v", when, took.Round(time.Millisecond))
		if took > time.Second {
			t.Errorf("synchronisation with 200 pods %s took %v, want less than 1 s", when, took)
		}
		told := p.list()
		for _, pod := range pods {
			c := p.found[pod.running]
			if !slices.Contains(told, "sync "+pod.id) || !slices.Contains(c.GetEnv(), "NRI=kept") ||
				c.GetLinux().GetResources().GetCpu().GetShares().GetValue() != 555 {
				t.Errorf("%s the plugin found %v, want the pod, and the container with its variable and shares", when, c)
			}
		}
		p.stub.Stop()
		if when == "while podd runs" {
			n.must(n.Restart(n.Context(), n.Kill9))
		}
		if after := n.adjusted(pods); !maps.Equal(after, before) {
			t.Errorf("%s the status or config.json of a container has changed", when)
		}
	}
}

// adjusted returns what has the adjustments of containers, by id: config.json, and the resources in the status.
func (n *node) adjusted(pods []pod) map[string]string {
	n.Helper()
	out := map[string]string{}
	for _, p := range pods {
		config, err := os.ReadFile(n.Path("run", "containers", p.running, "config.json"))
		n.must(err)
		reply, err := n.Runtime.ContainerStatus(n.Context(), &cri.ContainerStatusRequest{ContainerId: p.running})
		n.must(err)
		limits := reply.GetStatus().GetResources().GetLinux()
		if limits.GetCpuShares() != 555 || !strings.Contains(string(config), `"NRI=kept"`) {
			n.Errorf("container %s has %v and\n%s\nwant the variable and shares of the plugin", p.running, limits, config)
		}
		out[p.running] = prototext.Format(limits) + string(config)
	}
	return out
}

// TestReconnecting: pods come and go while a plugin connects again and again, and podd is killed in between. Each
// connection knows each pod and container by its synchronisation or its creation, and is told of its end once.
func TestReconnecting(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("podd needs root")
	}
	n := start(t)
	stop := make(chan struct{})
	var work sync.WaitGroup
	for caller := range 4 {
		work.Go(func() { n.comeAndGo(caller, stop) })
	}
	var connections []*observer
	for i := range 24 {
		p := &observer{}
		n.observe(p)
		connections = append(connections, p)
		time.Sleep(500 * time.Millisecond)
		if i%8 == 7 {
			n.must(n.Restart(n.Context(), n.Kill9))
		}
		p.stub.Stop()
	}
	last := &observer{}
	n.observe(last)
	close(stop)
	work.Wait()
	n.removeAll()
	for i, p := range connections {
		if problems := checkKnown(p.list(), false); len(problems) > 0 {
			t.Errorf("connection %d: %q", i, problems)
		}
	}
	var problems []string
	for range 100 { // the last events
		if problems = checkKnown(last.list(), true); len(problems) == 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if len(problems) > 0 {
		t.Errorf("last connection: %q", problems)
	}
	t.Logf("%d events", eventsOf(append(connections, last)))
}

func eventsOf(plugins []*observer) (number int) {
	for _, p := range plugins {
		number += len(p.list())
	}
	return number
}

// comeAndGo runs and removes pods until stop is closed. Calls that fail because podd is killed are repeated.
func (n *node) comeAndGo(caller int, stop chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		p, err := n.tryRun(fmt.Sprintf("reconnect-%d-%d", caller, i), nil, nil)
		for p.id != "" {
			_, err = n.Runtime.StopPodSandbox(n.Context(), &cri.StopPodSandboxRequest{PodSandboxId: p.id})
			if err == nil {
				_, err = n.Runtime.RemovePodSandbox(n.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: p.id})
			}
			if err == nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		if err != nil {
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// removeAll removes the pods whose ids the callers have not received.
func (n *node) removeAll() {
	n.Helper()
	list, err := n.Runtime.ListPodSandbox(n.Context(), &cri.ListPodSandboxRequest{})
	n.must(err)
	for _, p := range list.GetItems() {
		_, stopped := n.Runtime.StopPodSandbox(n.Context(), &cri.StopPodSandboxRequest{PodSandboxId: p.Id})
		_, removed := n.Runtime.RemovePodSandbox(n.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: p.Id})
		n.must(errors.Join(stopped, removed))
	}
}

// checkKnown returns what is wrong with the events of a connection. At the end of the last one nothing is left.
func checkKnown(told []string, last bool) (problems []string) {
	known := map[string]bool{}
	for _, line := range told {
		verb, id, _ := strings.Cut(line, " ")
		switch verb {
		case "sync", "RunPodSandbox", "CreateContainer":
			if known[id] {
				problems = append(problems, "known twice: "+line)
			}
			known[id] = true
		default:
			if !known[id] {
				problems = append(problems, "not known: "+line)
			}
			if strings.HasPrefix(verb, "Remove") {
				delete(known, id)
			}
		}
	}
	if last {
		for id := range known {
			problems = append(problems, "never removed: "+id)
		}
	}
	return problems
}

// TestSharingPlugin: a plugin that changes all other containers whenever one is created, as those do that share out
// CPUs, lets pods start at once, and its last word holds for each container.
func TestSharingPlugin(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("podd needs root")
	}
	n := start(t)
	var ids []string // of the containers, in the order of their creation
	n.observe(&observer{update: func(id string) (uint64, []*api.ContainerUpdate) {
		shares := uint64(100 + len(ids))
		var others []*api.ContainerUpdate
		for _, other := range ids {
			u := &api.ContainerUpdate{ContainerId: other}
			u.SetLinuxCPUShares(shares)
			others = append(others, u)
		}
		if len(ids)%2 == 1 { // else the containers' own queues would keep the order of concurrent answers
			slices.Reverse(others)
		}
		ids = append(ids, id)
		return shares, others
	}})
	const count = 24
	pods := n.runMany("first-", count/2, 8)
	for _, p := range append(pods, n.runMany("second-", count/2, 8)...) {
		var got int64
		for range 100 { // what waited for the end of its creation is made after that
			reply, err := n.Runtime.ContainerStatus(n.Context(), &cri.ContainerStatusRequest{ContainerId: p.running})
			n.must(err)
			if got = reply.GetStatus().GetResources().GetLinux().GetCpuShares(); got == 100+count-1 {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		if got != 100+count-1 {
			t.Errorf("container %s has %d shares, want %d, the plugin's last word", p.running, got, 100+count-1)
		}
	}
}
