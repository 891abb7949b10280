package nri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/lifecycle"
)

// shortTimeout is the limit of a request in the tests of plugins that hang.
const shortTimeout = time.Second

// request is one thing that the engine does. An asking one waits for plugins.
type request struct {
	verb   string
	asking bool
	do     func(ctx context.Context, n *node) error
}

func requests() []request {
	pod := newPod("p1")
	running := newContainer("c0", pod)
	post := func(f func(n *node)) func(context.Context, *node) error {
		return func(_ context.Context, n *node) error { f(n); return nil }
	}
	return []request{
		{"RunPodSandbox", true, func(ctx context.Context, n *node) error { return n.RunPod(ctx, newPod("p2")) }},
		{"UpdatePodSandbox", true, func(ctx context.Context, n *node) error { return n.UpdatePod(ctx, pod, nil, nil) }},
		{"CreateContainer", true, func(ctx context.Context, n *node) error {
			_, err := n.Create(ctx, newCreation("c1"))
			return err
		}},
		{"StartContainer", true, func(ctx context.Context, n *node) error { return n.Start(ctx, running) }},
		{"UpdateContainer", true, func(ctx context.Context, n *node) error {
			_, _, err := n.Update(ctx, running, &cri.LinuxContainerResources{CpuShares: 7})
			return err
		}},
		{"PostUpdatePodSandbox", false, post(func(n *node) { n.PostPodUpdate(pod) })},
		{"PostCreateContainer", false, post(func(n *node) { n.PostContainer(lifecycle.Created, running) })},
		{"PostStartContainer", false, post(func(n *node) { n.PostContainer(lifecycle.Started, running) })},
		{"PostUpdateContainer", false, post(func(n *node) { n.PostContainerUpdate(running) })},
		{"StopContainer", false, post(func(n *node) { n.PostContainer(lifecycle.Stopped, running) })},
		{"RemoveContainer", false, post(func(n *node) { n.PostContainer(lifecycle.Deleted, running) })},
		{"StopPodSandbox", false, post(func(n *node) { n.PostPod(lifecycle.Stopped, pod) })},
		{"RemovePodSandbox", false, post(func(n *node) { n.PostPod(lifecycle.Deleted, pod) })},
	}
}

// faults are what a plugin does instead of answering.
func pluginFaults(p *testPlugin, end <-chan struct{}) map[string]func() error {
	write := func(size int) func() error {
		return func() error {
			p.conn.Write([]byte(strings.Repeat("\xff", size)))
			<-end
			return nil
		}
	}
	return map[string]func() error{
		"hangs":            func() error { <-end; return nil },
		"dies":             func() error { p.conn.Close(); <-end; return nil },
		"answers rubbish":  write(64),
		"writes 64 MiB":    write(64 << 20),
		"answers an error": func() error { return errors.New("I do not want that") },
	}
}

// TestPluginFaults: a plugin that fails in a verb delays only the requests that call it, at most until its deadline.
// Then on_failure decides. The other plugin gets every event.
func TestPluginFaults(t *testing.T) {
	for _, r := range requests() {
		for _, fault := range []string{"hangs", "dies", "answers rubbish", "writes 64 MiB", "answers an error"} {
			for _, policy := range []string{"", "refuse"} {
				if !r.asking && policy != "" {
					continue // nobody waits, so nothing is refused
				}
				t.Run(fmt.Sprintf("%s %s on_failure=%s", r.verb, fault, policy), func(t *testing.T) {
					t.Parallel()
					testFault(t, r, fault, policy)
				})
			}
		}
	}
}

func testFault(t *testing.T, r request, fault, policy string) {
	engine := newFakeEngine()
	engine.put(newContainer("c0", newPod("p1")))
	n := newNode(t, engine, func(c *Config) {
		if c.RequestTimeout = time.Minute; fault == "hangs" {
			c.RequestTimeout = shortTimeout
		}
		c.Plugins = map[string]PluginTable{"bad": {OnFailure: policy}}
	})
	end := make(chan struct{})
	defer close(end)
	bad := &testPlugin{index: "10", name: "bad"}
	bad.before = func(verb string) error {
		if verb == r.verb {
			return pluginFaults(bad, end)[fault]()
		}
		return nil
	}
	n.connect(t, bad)
	good := n.connect(t, &testPlugin{index: "20", name: "good"})
	start := time.Now()
	err := r.do(t.Context(), n)
	took := time.Since(start)

	answered := fault == "answers an error"
	switch {
	case !r.asking && took > shortTimeout:
		t.Errorf("it took %v, want it not to wait for plugins", took)
	case fault == "hangs" && took > 5*shortTimeout, took > time.Minute/2:
		t.Errorf("it took %v, want the limit %v and little more", took, shortTimeout)
	}
	switch {
	case !r.asking && err != nil, r.asking && !answered && policy == "" && err != nil:
		t.Errorf("err = %v, want none", err)
	case r.asking && answered && !errdefs.IsFailedPrecondition(err):
		t.Errorf("err = %v, want the plugin's refusal", err)
	case r.asking && !answered && policy == "refuse" &&
		(!errdefs.IsUnavailable(err) || errors.Is(err, context.DeadlineExceeded)):
		t.Errorf("err = %v, want unavailable, and no deadline of the caller", err)
	}
	// The plugin stays connected if it has answered, and if it was only too slow and its requests are to be refused.
	stays := answered || fault == "hangs" && policy == "refuse"
	waitFor(t, fmt.Sprintf("the bad plugin to be connected: %v", stays), func() bool {
		connected := func(p *plugin) bool { return p.base == "bad" && !p.isClosed() } // a closed one leaves later
		return slices.ContainsFunc(n.joined(), connected) == stays
	})
	if err == nil {
		waitFor(t, "the good plugin to be told", func() bool {
			return slices.ContainsFunc(good.list(), func(s string) bool { return strings.HasPrefix(s, r.verb+" ") })
		})
	}
}

// TestHungPluginDelaysNoOther: requests of other pods that do not concern the plugin, and stops, take their usual time
// while one hangs in it.
func TestHungPluginDelaysNoOther(t *testing.T) {
	n := newNode(t, nil, func(c *Config) { c.RequestTimeout = time.Minute })
	end, reached, created := make(chan struct{}), make(chan struct{}), make(chan struct{})
	defer func() { close(end); <-created }()
	n.connect(t, &testPlugin{before: func(verb string) error {
		if verb == "CreateContainer" {
			close(reached)
			<-end
		}
		return nil
	}})
	go func() { defer close(created); n.Create(context.Background(), newCreation("c1")) }()
	<-reached
	start := time.Now()
	for i := range 100 {
		c := newContainer(fmt.Sprintf("d%d", i), newPod("p1"))
		n.announceContainer(c.ID)
		n.PostContainer(lifecycle.Stopped, c)
		n.PostContainer(lifecycle.Deleted, c)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("100 stops and removals took %v while a plugin hangs, want no wait", took)
	}
	if s := n.Status().Plugins[0]; s.Call != "CreateContainer" || s.Waiting != 200 {
		t.Errorf("status = %+v, want the call under way and 200 waiting", s)
	}
}

// TestQueueIsBounded: a plugin that falls behind is disconnected, and so synchronises anew.
func TestQueueIsBounded(t *testing.T) {
	n := newNode(t, nil, func(c *Config) { c.RequestTimeout = time.Minute })
	end := make(chan struct{})
	defer close(end)
	n.connect(t, &testPlugin{before: func(verb string) error {
		if verb == "StopContainer" {
			<-end
		}
		return nil
	}})
	for i := range 2 * queueLength {
		c := newContainer(fmt.Sprintf("d%d", i), newPod("p1"))
		n.announceContainer(c.ID)
		n.PostContainer(lifecycle.Stopped, c)
	}
	waitFor(t, "the plugin to be disconnected", func() bool { return len(n.Status().Plugins) == 0 })
}

// TestTooLargeAnswer: an answer that does not fit a message is a failure of the plugin, not its refusal.
func TestTooLargeAnswer(t *testing.T) {
	n := newNode(t, nil, nil)
	n.connect(t, &testPlugin{create: adjusting(func(a *api.ContainerAdjustment) {
		a.AddEnv("LARGE", strings.Repeat("x", 5<<20))
	})})
	if _, err := n.Create(t.Context(), newCreation("c1")); err != nil {
		t.Errorf("Create = %v, want the container without the plugin", err)
	}
	waitFor(t, "the plugin to be disconnected", func() bool { return len(n.Status().Plugins) == 0 })
}

// TestIsFailure: which errors are those of a plugin that does not answer, or answers rubbish.
func TestIsFailure(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{nil, false}, {status.Error(codes.Unknown, "no"), false}, {status.Error(codes.Unimplemented, "no"), false},
		{ttrpc.OversizedMessageError(5 << 20), false}, {status.Error(codes.ResourceExhausted, "too large"), true},
		{ttrpc.ErrClosed, true}, {context.DeadlineExceeded, true}, {errors.New("proto: cannot parse"), true},
	} {
		if got := isFailure(tt.err); got != tt.want {
			t.Errorf("isFailure(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
}

// TestErrorsAreOpaque: the library does not see the kind of a plugin's error, which it would take for one of its own
// connection and proceed. The caller does.
func TestErrorsAreOpaque(t *testing.T) {
	for _, cause := range []error{context.DeadlineExceeded, ttrpc.ErrClosed} {
		m := &merge{}
		if err := m.opaque(fmt.Errorf("plugin: %w", cause)); errors.Is(err, cause) || !errors.Is(m.refusal(err), cause) {
			t.Errorf("the library sees %v and the caller %v, want the kind %v for the caller only", err, m.refusal(err), cause)
		}
	}
}

// copies is a plugin that keeps the request that it gets.
type copies struct {
	api.PluginService
	got *api.CreateContainerRequest
}

func (c *copies) CreateContainer(_ context.Context, r *api.CreateContainerRequest) (
	*api.CreateContainerResponse, error,
) {
	c.got = r
	return &api.CreateContainerResponse{}, nil
}

// TestRequestIsCopied: a plugin that is given up may still read its request while the library changes it for the next.
func TestRequestIsCopied(t *testing.T) {
	service := &copies{}
	one := &plugin{
		events: api.ValidEvents, timeout: time.Minute, service: service, stats: &stats{},
		calls: make(chan *call, 1), closed: make(chan struct{}),
	}
	go one.work()
	defer one.close(errClosed)
	request := &api.CreateContainerRequest{Container: &api.Container{Id: "c1"}}
	if _, err := (&merge{}).function(one).Handlers.CreateContainer(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if service.got.Container == request.Container || service.got.Container.GetId() != "c1" {
		t.Errorf("the plugin got %v, want a copy of the request", service.got)
	}
}

// TestQueueWaitIsBounded: a request whose turn does not come is given up. The plugin has missed it, and so must
// synchronise again, unless the request fails or its caller has given up before.
func TestQueueWaitIsBounded(t *testing.T) {
	for _, tt := range []struct {
		name          string
		keep, givesUp bool
		closed        bool
	}{{name: "continue", closed: true}, {name: "refuse", keep: true}, {name: "caller gives up", givesUp: true}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &plugin{
					timeout: time.Second, keep: tt.keep, calls: make(chan *call, 1), closed: make(chan struct{}),
				}
				want := queueWait + p.timeout
				ctx, cancel := t.Context(), func() {}
				if tt.givesUp {
					want = time.Second
					ctx, cancel = context.WithTimeout(ctx, want)
				}
				defer cancel()
				start := time.Now()
				err := p.wait(ctx, "CreateContainer", func(context.Context) error { return nil })
				var failed *failure
				if took := time.Since(start); !errors.As(err, &failed) || took != want {
					t.Errorf("wait = %v after %v, want a failure after %v", err, took, want)
				}
				if p.isClosed() != tt.closed {
					t.Errorf("closed = %v, want %v", p.isClosed(), tt.closed)
				}
			})
		})
	}
}

// TestTooLargeRequest: a container that other plugins make too large for a message is refused. It is no failure of the
// plugin that would get the message.
func TestTooLargeRequest(t *testing.T) {
	n := newNode(t, nil, func(c *Config) { c.RequestTimeout = time.Minute })
	n.connect(t, &testPlugin{create: adjusting(func(a *api.ContainerAdjustment) {
		a.AddEnv("LARGE", strings.Repeat("x", 2<<20))
	})})
	p := n.connect(t, &testPlugin{index: "20", name: "second"})
	c := newCreation("large")
	c.Spec.Process.Env = []string{"OWN=" + strings.Repeat("x", maxDescription-2<<20)}
	if _, err := n.Create(t.Context(), c); err != nil {
		t.Errorf("Create of what fits = %.200v", err)
	}
	c = newCreation("too-large")
	c.Spec.Process.Env = []string{"OWN=" + strings.Repeat("x", maxDescription-1<<16)}
	if _, err := n.Create(t.Context(), c); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "20-second") {
		t.Errorf("Create = %.200v, want an invalid argument that names the second plugin", err)
	}
	if err := n.RunPod(t.Context(), newPod("p2")); err != nil {
		t.Fatal(err)
	}
	p.awaitTold(t, "CreateContainer large", "RunPodSandbox p2")
}

// TestPluginsOwnPolicy: what a plugin asks for holds unless the configuration says otherwise.
func TestPluginsOwnPolicy(t *testing.T) {
	for _, tt := range []struct {
		configured string
		want       bool
	}{{"", true}, {continueOnFailure, false}} {
		n := newNode(t, nil, func(c *Config) {
			c.RequestTimeout = shortTimeout
			c.Plugins = map[string]PluginTable{"test": {OnFailure: tt.configured}}
		})
		end := make(chan struct{})
		n.connect(t, &testPlugin{
			policy: &api.FailurePolicy{FailRequest: true}, before: func(string) error { <-end; return nil },
		})
		_, err := n.Create(t.Context(), newCreation("c1"))
		if (err != nil) != tt.want {
			t.Errorf("on_failure %q: Create = %v, want an error: %v", tt.configured, err, tt.want)
		}
		close(end)
	}
}

// TestSilentConnection: who connects and does not register is disconnected.
func TestSilentConnection(t *testing.T) {
	n := newNode(t, nil, func(c *Config) { c.RegistrationTimeout = 50 * time.Millisecond })
	conn := dial(t, n)
	conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read = %v, want the end of the connection", err)
	}
}

// TestConnectionsAreBounded: further plugins are refused.
func TestConnectionsAreBounded(t *testing.T) {
	n := newNode(t, nil, nil)
	for range maxPlugins {
		dial(t, n)
	}
	waitFor(t, "the connections", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.connections == maxPlugins })
	conn := dial(t, n)
	conn.SetReadDeadline(time.Now().Add(time.Second))
	if _, err := conn.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("Read of connection %d = %v, want it closed at once", maxPlugins+1, err)
	}
}
