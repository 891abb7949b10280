package nri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"
	"github.com/containerd/nri/pkg/stub"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sirupsen/logrus"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/sandbox/record"
)

// TestMain runs the test binary as a plugin if podd launches it as one.
func TestMain(m *testing.M) {
	if os.Getenv(api.PluginNameEnvVar) != "" {
		os.Exit(runLaunched())
	}
	os.Exit(m.Run())
}

// fakeEngine has the pods and containers that a test puts into it.
type fakeEngine struct {
	mu         sync.Mutex
	pods       map[string]record.PodView
	containers map[string]record.ContainerView
	updates    []string
	evicted    chan string
	// update, if set, is called by Update, and evict by Evict.
	update   func(id string, r Resources) error
	evict    func()
	evicting atomic.Int32 // calls of Evict
}

func newFakeEngine() *fakeEngine {
	return &fakeEngine{
		pods: map[string]record.PodView{}, containers: map[string]record.ContainerView{}, evicted: make(chan string, 8),
	}
}

func (e *fakeEngine) Existing() (pods []record.PodView, containers []record.ContainerView) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.pods {
		pods = append(pods, p)
	}
	for _, c := range e.containers {
		containers = append(containers, c)
	}
	return pods, containers
}

func (e *fakeEngine) Spec(id string) (*specs.Spec, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.containers[id]; !ok {
		return nil, errdefs.ErrNotFound
	}
	return baseSpec(), nil
}

func (e *fakeEngine) Update(ctx context.Context, id string, r Resources) error {
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > updateWait {
		return errors.New("the update has no deadline")
	}
	e.mu.Lock()
	e.updates = append(e.updates, fmt.Sprintf("%s shares=%d", id, r.CRI.GetCpuShares()))
	e.mu.Unlock()
	if e.update != nil {
		return e.update(id, r)
	}
	return nil
}

func (e *fakeEngine) updated() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.updates)
}

func (e *fakeEngine) Evict(_ context.Context, id, _ string) error {
	e.evicting.Add(1)
	defer e.evicting.Add(-1)
	if e.evict != nil {
		e.evict()
	}
	e.evicted <- id
	return nil
}

func (e *fakeEngine) put(c record.ContainerView) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pods[c.Pod.ID], e.containers[c.ID] = c.Pod, c
}

func (e *fakeEngine) drop(c record.ContainerView) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.containers, c.ID)
	delete(e.pods, c.Pod.ID)
}

// node is Plugins that serve a socket.
type node struct {
	*Plugins
	engine *fakeEngine
	socket string
}

// newNode serves plugins until the test ends. Change changes the configuration; either argument may be nil.
func newNode(t testing.TB, engine *fakeEngine, change func(*Config)) *node {
	t.Helper()
	dir := t.TempDir()
	cfg := DefaultConfig()
	cfg.Socket, cfg.PluginDir, cfg.ConfigDir = filepath.Join(dir, "nri.sock"), filepath.Join(dir, "plugins"), dir
	if change != nil {
		change(&cfg)
	}
	if wrong := wrongKeys(cfg); len(wrong) > 0 {
		t.Fatalf("Validate reports %q, want none", wrong)
	}
	if engine == nil {
		engine = newFakeEngine()
	}
	l, err := net.Listen("unix", cfg.Socket)
	if err != nil {
		t.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(newTestLog(t))
	p := New(cfg, "1.2.3", log)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx, engine, l)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.connections != 0 {
			t.Errorf("Run returned with %d connections, want 0", p.connections)
		}
	})
	waitFor(t, "the engine", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.engine != nil })
	return &node{Plugins: p, engine: engine, socket: cfg.Socket}
}

// testLog is the output of a test until it ends. Updates and evictions may go on after Run, see Plugins.work.
type testLog struct {
	mu sync.Mutex
	to io.Writer
}

func newTestLog(t testing.TB) *testLog {
	l := &testLog{to: t.Output()}
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.to = io.Discard
	})
	return l
}

func (l *testLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(b)
}

// testPlugin is a plugin by the library's own client side. It notes what it is told, and does what its functions say.
type testPlugin struct {
	index, name string
	policy      *api.FailurePolicy
	conn        net.Conn
	stub        stub.Stub
	synced      chan struct{}
	// before, if set, is called at each request with the verb.
	before func(verb string) error
	create func(pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error)
	update func(c *api.Container, r *api.LinuxResources) []*api.ContainerUpdate
	stop   func(c *api.Container) []*api.ContainerUpdate
	// synchronize, if set, is what it does with the list.
	synchronize func() error
	// validate, if set, makes it a validator.
	validate func() error

	mu   sync.Mutex
	told []string // verb and id
	seen map[string]*api.Container
}

// connect starts the plugin and waits until it is synchronised.
func (n *node) connect(t *testing.T, p *testPlugin) *testPlugin {
	t.Helper()
	conn, err := net.Dial("unix", n.socket)
	if err != nil {
		t.Fatal(err)
	}
	if p.index == "" {
		p.index = "10"
	}
	if p.name == "" {
		p.name = "test"
	}
	p.conn, p.synced, p.seen = conn, make(chan struct{}), map[string]*api.Container{}
	options := []stub.Option{
		stub.WithConnection(conn), stub.WithPluginName(p.name), stub.WithPluginIdx(p.index), stub.WithOnClose(func() {}),
		stub.WithLogger(quiet{}),
	}
	if p.policy != nil {
		options = append(options, stub.WithFailurePolicy(p.policy))
	}
	handler := any(p)
	if p.validate != nil {
		handler = validatingPlugin{p}
	}
	if p.stub, err = stub.New(handler, options...); err != nil {
		t.Fatal(err)
	}
	if err := p.stub.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); p.stub.Stop() })
	select {
	case <-p.synced:
	case <-time.After(time.Minute):
		t.Fatal("the plugin was not synchronised within a minute")
	}
	return p
}

// validatingPlugin is a plugin that validates adjustments.
type validatingPlugin struct{ *testPlugin }

func (v validatingPlugin) ValidateContainerAdjustment(context.Context, *api.ValidateContainerAdjustmentRequest) error {
	return v.validate()
}

type quiet struct{}

func (quiet) Debugf(context.Context, string, ...any) {}
func (quiet) Infof(context.Context, string, ...any)  {}
func (quiet) Warnf(context.Context, string, ...any)  {}
func (quiet) Errorf(context.Context, string, ...any) {}

var _ nrilog.Logger = quiet{}

func (p *testPlugin) note(verb, id string, c *api.Container) error {
	p.mu.Lock()
	p.told = append(p.told, verb+" "+id)
	if c != nil {
		p.seen[verb+" "+id] = c
	}
	p.mu.Unlock()
	if p.before != nil {
		return p.before(verb)
	}
	return nil
}

func (p *testPlugin) list() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.told)
}

// awaitTold waits until the plugin has been told exactly want.
func (p *testPlugin) awaitTold(t *testing.T, want ...string) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for !slices.Equal(p.list(), want) {
		if time.Now().After(deadline) {
			t.Fatalf("plugin was told\n%q, want\n%q", p.list(), want)
		}
		time.Sleep(time.Millisecond)
	}
}

func (p *testPlugin) Synchronize(
	_ context.Context, pods []*api.PodSandbox, containers []*api.Container,
) ([]*api.ContainerUpdate, error) {
	for _, pod := range pods {
		p.note("sync", pod.GetId(), nil)
	}
	for _, c := range containers {
		p.note("sync", c.GetId(), c)
	}
	close(p.synced)
	if p.synchronize != nil {
		return nil, p.synchronize()
	}
	return nil, nil
}

func (p *testPlugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return p.note("RunPodSandbox", pod.GetId(), nil)
}

func (p *testPlugin) UpdatePodSandbox(_ context.Context, pod *api.PodSandbox, _, _ *api.LinuxResources) error {
	return p.note("UpdatePodSandbox", pod.GetId(), nil)
}

func (p *testPlugin) PostUpdatePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return p.note("PostUpdatePodSandbox", pod.GetId(), nil)
}

func (p *testPlugin) StopPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return p.note("StopPodSandbox", pod.GetId(), nil)
}

func (p *testPlugin) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	return p.note("RemovePodSandbox", pod.GetId(), nil)
}

func (p *testPlugin) CreateContainer(
	_ context.Context, pod *api.PodSandbox, c *api.Container,
) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	if err := p.note("CreateContainer", c.GetId(), c); err != nil || p.create == nil {
		return nil, nil, err
	}
	return p.create(pod, c)
}

func (p *testPlugin) PostCreateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	return p.note("PostCreateContainer", c.GetId(), c)
}

func (p *testPlugin) StartContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	return p.note("StartContainer", c.GetId(), c)
}

func (p *testPlugin) PostStartContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	return p.note("PostStartContainer", c.GetId(), c)
}

func (p *testPlugin) UpdateContainer(
	_ context.Context, _ *api.PodSandbox, c *api.Container, r *api.LinuxResources,
) ([]*api.ContainerUpdate, error) {
	if err := p.note("UpdateContainer", c.GetId(), c); err != nil || p.update == nil {
		return nil, err
	}
	return p.update(c, r), nil
}

func (p *testPlugin) PostUpdateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	return p.note("PostUpdateContainer", c.GetId(), c)
}

func (p *testPlugin) StopContainer(
	_ context.Context, _ *api.PodSandbox, c *api.Container,
) ([]*api.ContainerUpdate, error) {
	if err := p.note("StopContainer", c.GetId(), c); err != nil || p.stop == nil {
		return nil, err
	}
	return p.stop(c), nil
}

func (p *testPlugin) RemoveContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	return p.note("RemoveContainer", c.GetId(), c)
}

func waitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("waited 30 s for %s", what)
			return
		}
	}
}

func newPod(id string) record.PodView {
	return record.PodView{
		Pod: &record.Pod{ID: id, Netns: "/var/run/netns/podd-" + id, Handler: "runc", Config: &cri.PodSandboxConfig{
			Metadata: &cri.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: "u-" + id},
			Labels:   map[string]string{"app": "web"}, Annotations: map[string]string{"note": "1"},
			Linux: &cri.LinuxPodSandboxConfig{CgroupParent: "/kubepods/pod" + id},
		}},
		Status: record.PodStatus{State: record.PodReady, IPs: []string{"10.0.0.7"}},
	}
}

func newContainer(id string, pod record.PodView) record.ContainerView {
	return record.ContainerView{
		Container: &record.Container{ID: id, PodID: pod.ID, ImageID: "beef", Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "main"}, Image: &cri.ImageSpec{Image: "busybox"},
			Linux: &cri.LinuxContainerConfig{
				Resources: &cri.LinuxContainerResources{CpuShares: 512, MemoryLimitInBytes: 64 << 20},
			},
		}},
		Status: record.ContainerStatus{State: record.ContainerCreated}, Pod: pod,
	}
}

// baseSpec is the config.json of every container before plugins adjust it.
func baseSpec() *specs.Spec {
	return &specs.Spec{
		Version: "1.3.0",
		Process: &specs.Process{
			Args: []string{"/bin/sh"}, Env: []string{"PATH=/bin", "KEEP=1"}, OOMScoreAdj: new(0),
			Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 1024, Hard: 4096}},
		},
		Root: &specs.Root{Path: "rootfs"}, Annotations: map[string]string{"a": "1", "b": "2"},
		Mounts: []specs.Mount{{Destination: "/proc", Type: "proc", Source: "proc"}, {
			Destination: "/data", Type: "bind", Source: "/srv/data", Options: []string{"rbind"},
		}},
		Linux: &specs.Linux{
			Resources:  &specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: new(uint64(512))}},
			Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}},
			Devices:    []specs.LinuxDevice{{Path: "/dev/old", Type: "c", Major: 1, Minor: 5}},
			Sysctl:     map[string]string{"kernel.shm_rmid_forced": "1"},
		},
	}
}

func newCreation(id string) Creation {
	c := newContainer(id, newPod("p1"))
	c.Status.State = record.ContainerCreating
	return Creation{
		Container: c, Spec: baseSpec(), Handler: spec.Handler{OCIVersion: "1.3.0"},
		Facts: spec.Facts{CgroupV2: true, Hugetlb: true, Swap: true, HugepageSizes: []string{"2MB"}, OOMScoreAdjMin: -999,
			RlimitMax: map[string]uint64{"RLIMIT_RTPRIO": 10}},
		InjectCDI: func(s *specs.Spec, devices []string) error {
			if slices.Contains(devices, "vendor.com/gpu=absent") {
				return errors.New("unresolvable CDI devices vendor.com/gpu=absent")
			}
			for _, d := range devices {
				s.Process.Env = append(s.Process.Env, "CDI="+d)
			}
			return nil
		},
		BlockIO: func(class string) (*specs.LinuxBlockIO, error) {
			if class != "slow" {
				return nil, fmt.Errorf("no class %s", class)
			}
			return &specs.LinuxBlockIO{Weight: new(uint16(20))}, nil
		},
	}
}

func dial(t *testing.T, n *node) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", n.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
