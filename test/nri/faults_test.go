package nri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// verbs are the events of a pod's life, and whether podd waits for the plugin's answer.
var verbs = []struct {
	event  api.Event
	asking bool
}{
	{api.Event_RUN_POD_SANDBOX, true}, {api.Event_CREATE_CONTAINER, true}, {api.Event_START_CONTAINER, true},
	{api.Event_UPDATE_CONTAINER, true}, {api.Event_UPDATE_POD_SANDBOX, true},
	{api.Event_POST_CREATE_CONTAINER, false}, {api.Event_POST_START_CONTAINER, false},
	{api.Event_POST_UPDATE_CONTAINER, false}, {api.Event_POST_UPDATE_POD_SANDBOX, false},
	{api.Event_STOP_CONTAINER, false}, {api.Event_REMOVE_CONTAINER, false}, {api.Event_STOP_POD_SANDBOX, false},
	{api.Event_REMOVE_POD_SANDBOX, false},
}

// Faults of a plugin. The one named good has none.
const (
	good    = "good"
	hangs   = "hangs"
	dies    = "dies"
	rubbish = "answers rubbish"
	huge    = "writes 64 MiB"
)

var garbage = bytes.Repeat([]byte{0xff}, 64<<20)

// TestFaults has a plugin fail in each verb, while a pod of its own lives and commands run in another pod. The calls of
// its own pod succeed or fail as on_failure says. It prints how long the commands took: the table of README.md.
func TestFaults(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("podd needs root")
	}
	n := start(t, `nri.plugins.strict.on_failure="refuse"`)
	other := n.run("other", nil, nil)
	first := quantiles{}
	for _, fault := range []string{good, hangs, dies, rubbish, huge, good} {
		var took []time.Duration
		t.Run(fault, func(t *testing.T) {
			n := n.sub(t)
			stop := n.execUntil(other, &took)
			defer stop()
			for _, v := range verbs {
				n.faultyLife("lax", v.event, fault, codes.OK)
				if want := codes.Unavailable; v.asking {
					if fault == good {
						want = codes.OK
					}
					n.faultyLife("strict", v.event, fault, want)
				}
			}
		})
		q := quantilesOf(took)
		if first.p99 == 0 {
			first = q
		}
		t.Logf("| %s | %d | %v | %v | %.2f |", fault, len(took), q.p50, q.p99, float64(q.p99)/float64(first.p99))
	}
}

type quantiles struct{ p50, p99 time.Duration }

func quantilesOf(took []time.Duration) quantiles {
	slices.Sort(took)
	if len(took) == 0 {
		return quantiles{}
	}
	return quantiles{
		took[len(took)/2].Round(100 * time.Microsecond), took[len(took)*99/100].Round(100 * time.Microsecond),
	}
}

// execUntil runs commands in the pod, one after the other, until stop is called.
func (n *node) execUntil(p pod, took *[]time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(n.Context())
	var work sync.WaitGroup
	work.Go(func() {
		for ctx.Err() == nil {
			begin := time.Now()
			_, err := n.Runtime.ExecSync(context.WithoutCancel(ctx), &cri.ExecSyncRequest{
				ContainerId: p.running, Cmd: []string{"true"}, Timeout: 20,
			})
			if err != nil {
				n.Errorf("a command in another pod: %v", err)
				return
			}
			*took = append(*took, time.Since(begin))
		}
	})
	return func() { cancel(); work.Wait() }
}

// faultyLife runs a pod with a plugin that fails in one event. The call that asks the plugin returns want.
func (n *node) faultyLife(name string, event api.Event, fault string, want codes.Code) {
	n.Helper()
	p := &faulty{event: event, fault: fault, asked: make(chan struct{}), end: make(chan struct{})}
	p.connect(n, name)
	defer n.awaitPlugins(0)
	defer p.stub.Stop()
	defer close(p.end)
	err := n.life(fmt.Sprintf("%s-%d-%s", name, event, strings.Fields(fault)[0]))
	if status.Code(err) != want || want != codes.OK && !strings.Contains(err.Error(), "on_failure is refuse") {
		n.Errorf("%s %s in %s: %v, want %v", name, fault, event.PrettyName(), err, want)
	}
	select {
	case <-p.asked:
	case <-time.After(5 * time.Second):
		n.Errorf("%s is not asked about %s", name, event.PrettyName())
	}
}

// life has a pod pass through all verbs, and returns the first error. Nothing is left of the pod.
func (n *node) life(name string) error {
	n.Helper()
	limits := &cri.LinuxContainerResources{CpuShares: 100}
	p, err := n.tryRun(name, nil, limits)
	if err == nil {
		_, err = n.Runtime.UpdateContainerResources(n.Context(), &cri.UpdateContainerResourcesRequest{
			ContainerId: p.running, Linux: &cri.LinuxContainerResources{CpuShares: 200},
		})
	}
	if err == nil {
		_, err = n.Runtime.UpdatePodSandboxResources(n.Context(), &cri.UpdatePodSandboxResourcesRequest{
			PodSandboxId: p.id, Resources: limits,
		})
	}
	if p.running != "" {
		_, stopped := n.Runtime.StopContainer(n.Context(), &cri.StopContainerRequest{ContainerId: p.running})
		_, removed := n.Runtime.RemoveContainer(n.Context(), &cri.RemoveContainerRequest{ContainerId: p.running})
		n.must(errors.Join(stopped, removed))
	}
	if p.id != "" {
		n.remove(p)
	}
	return err
}

// faulty is a plugin that is told of one event only, and fails in it.
type faulty struct {
	event api.Event
	fault string
	conn  net.Conn
	stub  stub.Stub
	once  sync.Once
	asked chan struct{} // closed at its event
	end   chan struct{}
}

func (p *faulty) connect(n *node, name string) {
	n.Helper()
	var err error
	p.conn, err = net.Dial("unix", n.socket())
	n.must(err)
	p.stub, err = stub.New(p, stub.WithConnection(p.conn), stub.WithPluginName(name), stub.WithPluginIdx("10"),
		stub.WithOnClose(func() {}))
	n.must(err)
	n.must(p.stub.Start(n.Context()))
	n.awaitPlugins(1)
}

func (p *faulty) Configure(context.Context, string, string, string) (stub.EventMask, error) {
	var mask api.EventMask
	return *mask.Set(p.event), nil
}

func (p *faulty) fail() error {
	p.once.Do(func() { close(p.asked) })
	switch p.fault {
	case dies:
		p.conn.Close()
	case rubbish:
		p.conn.Write(garbage[:64])
	case huge:
		p.conn.Write(garbage)
	}
	if p.fault != good {
		<-p.end
	}
	return nil
}

func (p *faulty) RunPodSandbox(context.Context, *api.PodSandbox) error        { return p.fail() }
func (p *faulty) StopPodSandbox(context.Context, *api.PodSandbox) error       { return p.fail() }
func (p *faulty) RemovePodSandbox(context.Context, *api.PodSandbox) error     { return p.fail() }
func (p *faulty) PostUpdatePodSandbox(context.Context, *api.PodSandbox) error { return p.fail() }

func (p *faulty) UpdatePodSandbox(context.Context, *api.PodSandbox, *api.LinuxResources, *api.LinuxResources) error {
	return p.fail()
}

func (p *faulty) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (
	*api.ContainerAdjustment, []*api.ContainerUpdate, error,
) {
	return nil, nil, p.fail()
}

func (p *faulty) UpdateContainer(context.Context, *api.PodSandbox, *api.Container, *api.LinuxResources) (
	[]*api.ContainerUpdate, error,
) {
	return nil, p.fail()
}

func (p *faulty) StopContainer(context.Context, *api.PodSandbox, *api.Container) ([]*api.ContainerUpdate, error) {
	return nil, p.fail()
}

func (p *faulty) StartContainer(context.Context, *api.PodSandbox, *api.Container) error {
	return p.fail()
}

func (p *faulty) RemoveContainer(context.Context, *api.PodSandbox, *api.Container) error {
	return p.fail()
}

func (p *faulty) PostCreateContainer(context.Context, *api.PodSandbox, *api.Container) error {
	return p.fail()
}

func (p *faulty) PostStartContainer(context.Context, *api.PodSandbox, *api.Container) error {
	return p.fail()
}

func (p *faulty) PostUpdateContainer(context.Context, *api.PodSandbox, *api.Container) error {
	return p.fail()
}
