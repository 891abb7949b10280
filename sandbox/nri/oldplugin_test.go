package nri

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"

	"github.com/podd-project/podd/sandbox/lifecycle"
)

// oldPlugin speaks the protocol as it was before each event had a request of its own. Unlike the library's client side,
// it can evict containers.
type oldPlugin struct {
	// evict is in the answers to the creation and the update of containers.
	evict []*api.ContainerEviction
	// runtime is podd, for the plugin's own requests.
	runtime api.RuntimeService
	// configured, if set, is called before the answer to Configure.
	configured func()

	mu     sync.Mutex
	events []string
}

// connect registers the plugin with the calls that old plugins serve.
func (p *oldPlugin) connect(t *testing.T, n *node) {
	t.Helper()
	mux := multiplex.Multiplex(dial(t, n))
	t.Cleanup(func() { mux.Close() })
	listener, err := mux.Listen(multiplex.PluginServiceConn)
	if err != nil {
		t.Fatal(err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	synced := make(chan struct{})
	server.RegisterService("nri.pkg.api.v1alpha1.Plugin", &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		"Configure": oldMethod(func(*api.ConfigureRequest) proto.Message {
			if p.configured != nil {
				p.configured()
			}
			return &api.ConfigureResponse{}
		}),
		"Synchronize": oldMethod(func(*api.SynchronizeRequest) proto.Message {
			close(synced)
			return &api.SynchronizeResponse{}
		}),
		"CreateContainer": oldMethod(func(*api.CreateContainerRequest) proto.Message {
			return &api.CreateContainerResponse{Evict: p.evict}
		}),
		"UpdateContainer": oldMethod(func(*api.UpdateContainerRequest) proto.Message {
			return &api.UpdateContainerResponse{Evict: p.evict}
		}),
		"StopContainer": oldMethod(func(*api.StopContainerRequest) proto.Message { return &api.StopContainerResponse{} }),
		"UpdatePodSandbox": oldMethod(func(*api.UpdatePodSandboxRequest) proto.Message {
			return &api.UpdatePodSandboxResponse{}
		}),
		"StateChange": oldMethod(func(e *api.StateChangeEvent) proto.Message {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.events = append(p.events, e.GetEvent().PrettyName()+" "+e.GetPod().GetId()+e.GetContainer().GetId())
			return &api.Empty{}
		}),
	}})
	go server.Serve(context.Background(), listener)
	conn, err := mux.Open(multiplex.RuntimeServiceConn)
	if err != nil {
		t.Fatal(err)
	}
	client := ttrpc.NewClient(conn)
	t.Cleanup(func() { client.Close() })
	p.runtime = api.NewRuntimeClient(client)
	if _, err := p.runtime.RegisterPlugin(t.Context(),
		&api.RegisterPluginRequest{PluginName: "old", PluginIdx: "05"}); err != nil {
		t.Fatal(err)
	}
	<-synced
}

func oldMethod[Q any](answer func(*Q) proto.Message) ttrpc.Method {
	return func(_ context.Context, unmarshal func(any) error) (any, error) {
		request := new(Q)
		if err := unmarshal(request); err != nil {
			return nil, err
		}
		return answer(request), nil
	}
}

// TestOldPlugin: a plugin that does not know the requests of single events gets them as StateChange.
func TestOldPlugin(t *testing.T) {
	n := newNode(t, nil, nil)
	p := &oldPlugin{}
	p.connect(t, n)
	live(t, n, newPod("p1"), newCreation("c1"))
	want := []string{
		"RunPodSandbox p1", "PostCreateContainer p1c1", "StartContainer p1c1", "PostStartContainer p1c1",
		"PostUpdateContainer p1c1", "PostUpdatePodSandbox p1", "RemoveContainer p1c1", "StopPodSandbox p1",
		"RemovePodSandbox p1",
	}
	told := func() []string { p.mu.Lock(); defer p.mu.Unlock(); return slices.Clone(p.events) }
	waitFor(t, "all events", func() bool { return len(told()) >= len(want) })
	if got := told(); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	if s := n.Status().Plugins; len(s) != 1 {
		t.Errorf("plugins = %+v, want the old one to be connected still", s)
	}
}

// TestSecondRegistration: a plugin cannot change its name, and a bad name is refused.
func TestSecondRegistration(t *testing.T) {
	n := newNode(t, nil, nil)
	c := &connection{p: n.Plugins, one: &plugin{}, registered: make(chan *api.RegisterPluginRequest, 1)}
	for _, tt := range []struct {
		name, index string
		ok          bool
	}{
		{"a b", "10", false}, {"", "10", false}, {"a", "1", false}, {strings.Repeat("a", maxName+1), "10", false},
		{"a", "10", true}, {"b", "10", false},
	} {
		_, err := c.RegisterPlugin(t.Context(), &api.RegisterPluginRequest{PluginName: tt.name, PluginIdx: tt.index})
		if (err == nil) != tt.ok {
			t.Errorf("RegisterPlugin(%q, %q) = %v, want success: %v", tt.name, tt.index, err, tt.ok)
		}
	}
}

// newerPlugin subscribes to an event that podd does not know.
type newerPlugin struct{ api.PluginService }

func (newerPlugin) Configure(context.Context, *api.ConfigureRequest) (*api.ConfigureResponse, error) {
	return &api.ConfigureResponse{Events: 1 << 30}, nil
}

// TestUnknownEvents: a plugin that relies on an event that podd does not know is refused.
func TestUnknownEvents(t *testing.T) {
	c := &connection{p: newNode(t, nil, nil).Plugins, one: &plugin{service: newerPlugin{}}}
	if err := c.configure(t.Context()); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "0x40000000") {
		t.Errorf("configure = %v, want an invalid argument that names the event", err)
	}
}

// TestUnknownObjects: nobody is told of what no plugin was asked about.
func TestUnknownObjects(t *testing.T) {
	n := newNode(t, nil, nil)
	p := n.connect(t, &testPlugin{})
	for _, e := range []lifecycle.EventType{lifecycle.Created, lifecycle.Started, lifecycle.Stopped, lifecycle.Deleted} {
		n.PostPod(e, newPod("unknown"))
		n.PostContainer(e, newContainer("unknown", newPod("unknown")))
	}
	n.PostContainerUpdate(newContainer("unknown", newPod("unknown")))
	if err := n.RunPod(t.Context(), newPod("p1")); err != nil {
		t.Fatal(err)
	}
	p.awaitTold(t, "RunPodSandbox p1")
}
