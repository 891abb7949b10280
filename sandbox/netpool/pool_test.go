package netpool

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/network/networktest"
	"github.com/podd-project/podd/sandbox/namespaces"
	"github.com/podd-project/podd/sandbox/namespaces/namespacestest"
	"github.com/podd-project/podd/sandbox/record"
)

// node is the fakes that a pool works on.
type node struct {
	dir        string
	namespaces *namespacestest.Fake
	network    *networktest.Fake
	busy       atomic.Bool
}

func newNode(t *testing.T) *node {
	n := &node{dir: t.TempDir(), namespaces: namespacestest.NewFake(), network: networktest.NewFake()}
	return n
}

func (n *node) pool(size int) *Pool {
	log := logrus.New()
	log.SetOutput(io.Discard)
	l := record.Layout{Mark: mark, Root: n.dir, Run: filepath.Join(n.dir, "run"), NetnsDir: filepath.Join(n.dir, "netns")}
	return New(Settings{Size: size, Sysctls: map[string]string{"net.ipv4.x": "1"}}, l, n.namespaces, n.network, log)
}

// mark ends the ids of pods.
const mark = "0123456789abcdef"

// run runs the pool until the test ends, or the function that it returns is called.
func (n *node) run(t *testing.T, p *Pool) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx, n.busy.Load)
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// clean checks that nothing is left on the node.
func (n *node) clean(t *testing.T) {
	t.Helper()
	attached, _ := n.network.Attachments() // the fake has no errors
	leases, _ := n.network.Leases()
	runs, _ := filepath.Glob(filepath.Join(n.dir, "run/pods/*"))
	if len(attached)+len(leases)+len(n.namespaces.Mounted())+len(runs) > 0 {
		t.Errorf("left: attachments %v, leases %v, namespaces %v, directories %v",
			attached, leases, n.namespaces.Mounted(), runs)
	}
}

func wantReady(t *testing.T, p *Pool, want int) {
	t.Helper()
	synctest.Wait()
	if s := p.Status(); s.Ready != want {
		t.Errorf("%d are ready, want %d: %+v", s.Ready, want, s)
	}
}

var errFull = errors.New("no addresses are left")

func pod() *cri.PodSandboxConfig { return &cri.PodSandboxConfig{} }

func mustTake(t *testing.T, p *Pool) *Attachment {
	t.Helper()
	a := p.Take(pod(), "")
	if a == nil {
		t.Fatalf("Take = nil, want an attachment: %+v", p.Status())
	}
	if len(a.ID) != 64 || !strings.HasSuffix(a.ID, mark) {
		t.Errorf("id = %q, want 64 digits that end with %s", a.ID, mark)
	}
	return a
}

func TestNilPool(t *testing.T) {
	var p *Pool
	if a := p.Take(pod(), ""); a != nil || p.Freed() > 0 || p.GiveWay(t.Context(), errFull, 0) || p.IDs() != nil {
		t.Errorf("a nil pool has attachments: %v", a)
	}
	p.Given(nil)
	p.Return(nil)
}

func TestFillsAndEmpties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pool(3)
		stop := n.run(t, p)
		wantReady(t, p, 3)
		if ids := p.IDs(); len(ids) != 3 {
			t.Errorf("IDs = %v, want 3", ids)
		}
		stop()
		wantReady(t, p, 0)
		n.clean(t)
		if a := p.Take(pod(), ""); a != nil {
			t.Errorf("Take after the end = %v, want none", a)
		}
	})
}

// TestGivenOnce: each attachment is given once, with what CNI returned for its id, and no longer the pool's then.
func TestGivenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pool(2)
		stop := n.run(t, p)
		synctest.Wait()
		seen, made := map[string]bool{}, p.IDs()
		for i := range 2 {
			a := mustTake(t, p)
			if a.ID != made[i] || len(a.Result.IPs) != 2 || a.Netns != p.layout.Netns(a.ID) {
				t.Errorf("Take = %+v, want the oldest, %s, with two addresses in its own namespace", a, made[i])
			}
			seen[a.ID] = true
			if !slices.Contains(p.IDs(), a.ID) {
				t.Error("the id of what is being given away is not among the pool's: it would be garbage")
			}
		}
		if a := p.Take(pod(), ""); a != nil {
			t.Errorf("Take of an empty pool = %v, want none", a)
		}
		for id := range seen {
			p.Given(&Attachment{ID: id})
			if slices.Contains(p.IDs(), id) {
				t.Error("the id of what was given away is still among the pool's: it would never be garbage")
			}
		}
		if s := p.Status(); s.Taken != 2 || s.Missed != 1 {
			t.Errorf("Status = %+v, want 2 taken, 1 missed", s)
		}
		stop()
		if got, _ := n.network.Attachments(); len(got) != 2 || !seen[got[0]] || !seen[got[1]] {
			t.Errorf("attached at the end: %v, want what was given: %v", got, seen)
		}
	})
}

// TestGivenOnceConcurrently: as TestGivenOnce, with many pods at once, of which some are not made, while the pool is
// refilled, gives way and is reconfigured. What was given stays, and nothing else.
func TestGivenOnceConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pool(4)
		stop := n.run(t, p)
		var held, given sync.Map
		var count atomic.Int32
		take := func(i int) {
			a := p.Take(pod(), "")
			if a == nil {
				return
			}
			if _, twice := held.LoadOrStore(a.ID, true); twice {
				t.Errorf("%s is given to two pods", a.ID)
			}
			if _, used := given.Load(a.ID); used {
				t.Errorf("%s is given again", a.ID)
			}
			if i%3 == 0 {
				held.Delete(a.ID)
				p.Return(a)
				return
			}
			time.Sleep(time.Second)
			given.Store(a.ID, true)
			count.Add(1)
			p.Given(a)
		}
		var all sync.WaitGroup
		for taker := range 8 {
			all.Go(func() {
				for i := range 200 {
					take(taker + i)
					time.Sleep(time.Duration(i%4) * time.Second) // several wake at once
				}
			})
		}
		for range 2 {
			all.Go(func() {
				for range 4 {
					time.Sleep(giveWayPause + 20*time.Second)
					p.GiveWay(t.Context(), errFull, p.Freed())
				}
			})
		}
		all.Go(func() {
			for range 10 {
				time.Sleep(7 * time.Second)
				p.Reconfigure(Settings{Size: 4})
			}
		})
		all.Wait()
		stop()
		left, _ := n.network.Attachments() // the fake has no errors
		if len(left) != int(count.Load()) || len(left) < 20 {
			t.Errorf("%d are attached at the end, %d were given, want as many, and 20 or more", len(left), count.Load())
		}
		for _, id := range left {
			if _, ok := given.Load(id); !ok {
				t.Errorf("%s is attached, which no pod has", id)
			}
		}
	})
}

// TestIDsWhileMade: what is only half made is the pool's, too.
func TestIDsWhileMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		release := make(chan struct{})
		n.network.After = func(_ context.Context, verb, _ string) error {
			if verb == "setup" {
				<-release
			}
			return nil
		}
		p := n.pool(1)
		n.run(t, p)
		synctest.Wait()
		if got, _ := n.network.Attachments(); len(got) != 1 || !slices.Equal(p.IDs(), got) {
			t.Errorf("IDs = %v, want %v", p.IDs(), got)
		}
		close(release)
	})
}

// TestWaitsForPods: none is made within the time in which the containers of a new pod are started, nor while any are.
func TestWaitsForPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pool(1)
		n.run(t, p)
		synctest.Wait()
		p.Given(mustTake(t, p))
		time.Sleep(quiet - time.Millisecond)
		wantReady(t, p, 0)
		n.busy.Store(true)
		time.Sleep(time.Second)
		wantReady(t, p, 0)
		n.busy.Store(false)
		time.Sleep(busyInterval)
		wantReady(t, p, 1)
		p.Given(mustTake(t, p))
		time.Sleep(quiet - time.Millisecond)
		p.Take(&cri.PodSandboxConfig{PortMappings: []*cri.PortMapping{{HostPort: 80}}}, "")
		time.Sleep(quiet - time.Millisecond)
		wantReady(t, p, 0) // that pod takes none, but its containers are started as well
		time.Sleep(busyInterval)
		wantReady(t, p, 1)
	})
}

func TestReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pool(1)
		stop := n.run(t, p)
		synctest.Wait()
		first := mustTake(t, p)
		p.Return(first)
		if ids := p.IDs(); len(ids) != 1 {
			t.Errorf("IDs = %v, want 1", ids)
		}
		if again := mustTake(t, p); again != first {
			t.Errorf("Take = %v, want what was returned, %v", again, first)
		}
		p.Reconfigure(Settings{Size: 1})
		p.Return(first)
		time.Sleep(quiet)
		synctest.Wait()
		if second := mustTake(t, p); second == first {
			t.Error("Take returned what was made with former settings")
		} else {
			p.Return(second)
		}
		stop()
		n.clean(t)
	})
}

// TestServes has the pods whose network depends on more than the configuration.
func TestServes(t *testing.T) {
	options := func(o *cri.NamespaceOption) *cri.PodSandboxConfig {
		return &cri.PodSandboxConfig{Linux: &cri.LinuxPodSandboxConfig{
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: o},
		}}
	}
	sysctls := func(key string) *cri.PodSandboxConfig {
		return &cri.PodSandboxConfig{Linux: &cri.LinuxPodSandboxConfig{Sysctls: map[string]string{key: "1"}}}
	}
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pool(1)
		n.run(t, p)
		synctest.Wait()
		for name, test := range map[string]struct {
			config  *cri.PodSandboxConfig
			confDir string
			want    bool
		}{
			"plain":          {config: pod(), want: true},
			"container port": {config: &cri.PodSandboxConfig{PortMappings: []*cri.PortMapping{{ContainerPort: 80}}}, want: true},
			"host port":      {config: &cri.PodSandboxConfig{PortMappings: []*cri.PortMapping{{HostPort: 80}}}},
			"bandwidth": {config: &cri.PodSandboxConfig{
				Annotations: map[string]string{"kubernetes.io/egress-bandwidth": "1M"},
			}},
			"bad bandwidth": {config: &cri.PodSandboxConfig{
				Annotations: map[string]string{"kubernetes.io/egress-bandwidth": "x"},
			}},
			"network of the node": {config: options(&cri.NamespaceOption{Network: cri.NamespaceMode_NODE})},
			"user namespace": {config: options(&cri.NamespaceOption{UsernsOptions: &cri.UserNamespace{
				Mode: cri.NamespaceMode_POD, Uids: []*cri.IDMapping{{Length: 1}}, Gids: []*cri.IDMapping{{Length: 1}},
			}})},
			"sysctl of the network": {config: sysctls("net.ipv4.tcp_rmem")},
			"another spelling":      {config: sysctls("net/ipv4/tcp_rmem")},
			"sysctl of IPC":         {config: sysctls("kernel.msgmax"), want: true},
			"handler's own network": {config: pod(), confDir: "/etc/other"},
		} {
			a := p.Take(test.config, test.confDir)
			if got := a != nil; got != test.want {
				t.Errorf("%s: taken = %t, want %t", name, got, test.want)
			}
			p.Return(a)
		}
		if s := p.Status(); s.Missed != 0 {
			t.Errorf("Status = %+v, want none missed: no other pod could have taken one", s)
		}
	})
}

// TestChangedAttachment: what is not as it was made is given to no pod, and is detached soon even if none asks.
func TestChangedAttachment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pool(2)
		stop := n.run(t, p)
		synctest.Wait()
		n.network.ChangeConf()
		if a := p.Take(pod(), ""); a != nil {
			t.Errorf("Take = %v, want none of the former configuration", a)
		}
		time.Sleep(quiet)
		wantReady(t, p, 2)
		before := p.IDs()
		n.network.ChangeConf()
		time.Sleep(lookInterval)
		wantReady(t, p, 2)
		for _, id := range p.IDs() {
			if slices.Contains(before, id) {
				t.Errorf("%s of the former configuration is still in the pool", id)
			}
		}
		stop()
		n.clean(t)
	})
}

func TestNotGeneric(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.network.SetGeneric(errors.New("a plugin asks who it is for"))
		n.network.Before = func(_ context.Context, verb, _ string) error {
			if n.network.Generic() != nil {
				t.Errorf("%s of a network that is not generic", verb)
			}
			return nil
		}
		p := n.pool(2)
		w := &watched{Fake: n.network}
		p.network = w
		var logged *logtest.Hook
		p.log, logged = logtest.NewNullLogger()
		n.run(t, p)
		time.Sleep(10*lookInterval - time.Second)
		if got := w.generics.Load(); got != 10 {
			t.Errorf("the configuration was read %d times in %v, want 10", got, 10*lookInterval)
		}
		time.Sleep(time.Second)
		wantReady(t, p, 0)
		if s := p.Status(); s.Problem != "a plugin asks who it is for" {
			t.Errorf("Status = %+v, want the reason", s)
		}
		if got := len(logged.AllEntries()); got != 1 {
			t.Errorf("logged %d times, want once", got)
		}
		n.network.SetGeneric(nil)
		time.Sleep(lookInterval)
		wantReady(t, p, 2)
		if s := p.Status(); s.Problem != "" {
			t.Errorf("Status = %+v, want no problem any more", s)
		}
		n.network.SetGeneric(errors.New("another plugin asks"))
		n.network.Before = nil // what is there has to be detached
		if a := p.Take(pod(), ""); a != nil {
			t.Errorf("Take = %v, want none of a network that is no longer generic", a)
		}
	})
}

func TestReconfigure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pool(3)
		n.run(t, p)
		for _, size := range []int{3, 1, 4, 0} {
			p.Reconfigure(Settings{Size: size})
			wantReady(t, p, size)
			if ids := p.IDs(); len(ids) != size || p.Status().Size != size {
				t.Errorf("IDs = %v, %+v, want %d", ids, p.Status(), size)
			}
		}
		n.clean(t)
		if p.Take(pod(), "") != nil || p.Status().Missed != 0 {
			t.Error("a pool of size 0 gives or misses")
		}
	})
}

// TestReconfiguredMeanwhile: what is being made while the settings change is given to no pod.
func TestReconfiguredMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		var p *Pool
		var former string
		n.network.After = func(_ context.Context, verb, id string) error {
			if verb == "setup" && former == "" {
				former = id
				p.Reconfigure(Settings{Size: 1})
			}
			return nil
		}
		p = n.pool(1)
		n.run(t, p)
		wantReady(t, p, 1)
		if ids := p.IDs(); slices.Contains(ids, former) {
			t.Errorf("IDs = %v, want another than %s, which was made with the former settings", ids, former)
		}
	})
}

// TestFailures: what fails is undone and tried again after a pause that grows; what cannot be undone counts, so that
// no more is made than there should be.
func TestFailures(t *testing.T) {
	for _, verb := range []string{"pin", "setup", "sysctl", "state"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				var tries atomic.Int32
				fail := func(_ context.Context, called, _ string) error {
					if called == verb {
						tries.Add(1)
						return errors.New("injected")
					}
					return nil
				}
				n.namespaces.After, n.network.After = fail, fail
				p := n.pool(2)
				p.network = &watched{Fake: n.network, failState: func() error { return fail(t.Context(), "state", "") }}
				stop := n.run(t, p)
				time.Sleep(minBackoff * 20) // after 0, 1, 3, 7, 15 s
				wantReady(t, p, 0)
				if got := tries.Load(); got != 5 {
					t.Errorf("%d attempts in 20 s, want 5", got)
				}
				if p.Status().Problem == "" {
					t.Error("Status has no problem")
				}
				n.clean(t)
				time.Sleep(2 * maxBackoff) // the pause has grown to its maximum
				tries.Store(0)
				time.Sleep(10 * maxBackoff)
				if got := tries.Load(); got != 10 {
					t.Errorf("%d attempts in 10 of the longest pauses, want 10", got)
				}
				time.Sleep(time.Second)
				p.Reconfigure(Settings{Size: 2})
				synctest.Wait()
				if got := tries.Load(); got != 11 {
					t.Errorf("%d attempts after other settings, want 1 more, at once", got)
				}
				time.Sleep(minBackoff)
				synctest.Wait()
				if got := tries.Load(); got != 12 {
					t.Errorf("%d attempts %v later, want 1 more", got, minBackoff)
				}
				stop()
			})
		})
	}
}

func TestCannotDetach(t *testing.T) {
	for _, verb := range []string{"teardown", "unpin"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				var failing atomic.Bool
				fail := func(_ context.Context, called, _ string) error {
					if called == verb && failing.Load() {
						return errors.New("injected")
					}
					return nil
				}
				n.namespaces.Before, n.network.Before = fail, fail
				p := n.pool(2)
				stop := n.run(t, p)
				synctest.Wait()
				failing.Store(true)
				n.network.ChangeConf()
				time.Sleep(10 * lookInterval)
				wantReady(t, p, 0)
				if ids := p.IDs(); len(ids) != 2 || p.Status().Problem == "" {
					t.Errorf("IDs = %v, %+v, want the two that cannot be detached, and the reason", ids, p.Status())
				}
				failing.Store(false)
				time.Sleep(2 * lookInterval)
				wantReady(t, p, 2)
				stop()
				n.clean(t)
			})
		})
	}
}

// TestDamagedRecord: what cannot be detached by its record is detached by its id.
func TestDamagedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.network.Before = func(_ context.Context, verb, _ string) error {
			if verb == "teardown" {
				return network.ErrDamaged
			}
			return nil
		}
		p := n.pool(2)
		stop := n.run(t, p)
		wantReady(t, p, 2)
		stop()
		n.clean(t)
	})
}

// watched counts calls of State and Generic, and fails them with the errors of its functions that are set.
type watched struct {
	*networktest.Fake
	states, generics       atomic.Int32
	failState, failGeneric func() error
}

func (w *watched) State(id string) (string, error) {
	w.states.Add(1)
	if w.failState != nil {
		if err := w.failState(); err != nil {
			return "", err
		}
	}
	return w.Fake.State(id)
}

func (w *watched) Generic() error {
	w.generics.Add(1)
	if w.failGeneric != nil {
		if err := w.failGeneric(); err != nil {
			return err
		}
	}
	return w.Fake.Generic()
}

// TestLooksSeldom: as long as the pool waits, what is ready is not compared with the machine each time.
func TestLooksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pool(2)
		w := &watched{Fake: n.network}
		p.network = w
		n.network.After = func(_ context.Context, verb, _ string) error {
			n.busy.Store(verb == "setup")
			return nil
		}
		n.run(t, p)
		wantReady(t, p, 1)
		w.states.Store(0)
		time.Sleep(longBusy - time.Millisecond) // the pool asks whether the engine is busy every 50 ms
		if got := w.states.Load(); got > 1 {
			t.Errorf("State was called %d times in %v, want once", got, longBusy)
		}
		n.busy.Store(false)
	})
}

// pinned notes the sysctls with which namespaces are made, and those set after CNI.
type pinned struct {
	*namespacestest.Fake
	made, set map[string]string
}

func (f *pinned) Pin(ctx context.Context, r namespaces.Request) error {
	f.made = r.Sysctls
	return f.Fake.Pin(ctx, r)
}

func (f *pinned) Sysctl(ctx context.Context, netns string, sysctls map[string]string) error {
	f.set = sysctls
	return f.Fake.Sysctl(ctx, netns, sysctls)
}

// TestSysctls: the namespace has the sysctls of the present settings, also after CNI.
func TestSysctls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pool(1)
		pins := &pinned{Fake: n.namespaces}
		p.namespaces = pins
		n.run(t, p)
		wantReady(t, p, 1)
		for _, value := range []string{"1", "2"} {
			if pins.made["net.ipv4.x"] != value || pins.set["net.ipv4.x"] != value {
				t.Errorf("sysctls %v, after CNI %v, want net.ipv4.x=%s", pins.made, pins.set, value)
			}
			p.Reconfigure(Settings{Size: 1, Sysctls: map[string]string{"net.ipv4.x": "2"}})
			wantReady(t, p, 1)
		}
	})
}

// TestGiveWay: a pod that lacks an address gets those of the pool, also the one that is just being taken; the pool
// does not take them back at once.
func TestGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		var hang atomic.Bool
		n.network.Before = func(ctx context.Context, verb, _ string) error {
			if verb == "setup" && hang.Load() {
				<-ctx.Done() // the plugin is killed
				return context.Cause(ctx)
			}
			return nil
		}
		p := n.pool(3)
		stop := n.run(t, p)
		synctest.Wait()
		hang.Store(true)
		p.Given(mustTake(t, p))
		time.Sleep(quiet) // one is being made
		synctest.Wait()
		for _, cause := range []error{errdefs.ErrInvalidArgument, errdefs.ErrUnavailable, context.DeadlineExceeded} {
			if p.GiveWay(t.Context(), cause, p.Freed()) || p.Status().Ready != 2 {
				t.Errorf("GiveWay because of %v = true, want false", cause)
			}
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if p.GiveWay(gone, errFull, p.Freed()) || p.Status().Ready != 2 {
			t.Error("GiveWay for a pod whose creation has ended = true, want false")
		}
		before := p.Freed()
		if !p.GiveWay(t.Context(), errFull, before) {
			t.Error("GiveWay = false, want true")
		}
		if !p.GiveWay(t.Context(), errFull, before) {
			t.Error("GiveWay for another pod that failed before = false, want true")
		}
		hang.Store(false)
		if got, _ := n.network.Attachments(); len(got) != 1 {
			t.Errorf("attached: %v, want only what a pod has taken", got)
		}
		time.Sleep(giveWayPause - time.Second)
		wantReady(t, p, 0)
		if p.GiveWay(t.Context(), errFull, p.Freed()) {
			t.Error("GiveWay of an empty pool = true, want false")
		}
		time.Sleep(giveWayPause)
		wantReady(t, p, 3)
		stop()
	})
}

// TestGiveWayInPart: an attachment that cannot be detached does not keep the others from a pod. An address is freed
// once, though its namespace cannot be deleted.
func TestGiveWayInPart(t *testing.T) {
	for _, verb := range []string{"teardown", "unpin"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				p := n.pool(2)
				var stuck atomic.Value
				fail := func(_ context.Context, called, what string) error {
					if id, _ := stuck.Load().(string); called == verb && id != "" && (what == id || what == p.layout.Netns(id)) {
						return errors.New("injected")
					}
					return nil
				}
				n.network.Before, n.namespaces.Before = fail, fail
				n.run(t, p)
				synctest.Wait()
				stuck.Store(p.IDs()[0])
				if !p.GiveWay(t.Context(), errFull, p.Freed()) {
					t.Error("GiveWay = false, want true: one of two is detached")
				}
				if p.GiveWay(t.Context(), errFull, p.Freed()) {
					t.Error("GiveWay again = true, want false: the last one cannot be detached, or holds no address")
				}
				stuck.Store("")
			})
		})
	}
}

// TestGiveWayBeforeMaking: the pool takes no address after it gave way, even if it was about to.
func TestGiveWayBeforeMaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pool(1)
		var asked bool
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Run(ctx, func() bool {
				if !asked {
					asked = true
					p.GiveWay(ctx, errFull, 0)
				}
				return false
			})
		}()
		time.Sleep(giveWayPause - time.Second)
		if s := p.Status(); s.Ready != 0 || s.Problem != errGiveWay.Error() {
			t.Errorf("Status = %+v, want nothing but %v", s, errGiveWay)
		}
		time.Sleep(time.Second)
		wantReady(t, p, 1)
		cancel()
		<-done
	})
}

// TestReturnKeepsTheSize: what is returned to a pool that was refilled, or has given way, is detached.
func TestReturnKeepsTheSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pool(2)
		n.run(t, p)
		synctest.Wait()
		taken := mustTake(t, p)
		time.Sleep(quiet)
		wantReady(t, p, 2)
		p.Return(taken)
		wantReady(t, p, 2)
		if ids := p.IDs(); len(ids) != 2 {
			t.Errorf("IDs = %v, want 2", ids)
		}
		taken = mustTake(t, p)
		p.GiveWay(t.Context(), errFull, 0)
		p.Return(taken)
		wantReady(t, p, 0)
		n.clean(t)
	})
}

// TestBusyForLong: the status says that the pool waits for an operation that hangs, and it does not ask often then.
func TestBusyForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pool(1)
		var asked atomic.Int32
		n.busy.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Run(ctx, func() bool { asked.Add(1); return n.busy.Load() })
		}()
		time.Sleep(longBusy - time.Second)
		if s := p.Status(); s.Problem != "" {
			t.Errorf("Status = %+v, want no problem yet", s)
		}
		time.Sleep(2 * time.Second)
		if s := p.Status(); s.Problem != errBusy.Error() {
			t.Errorf("Status = %+v, want that the pool waits", s)
		}
		asked.Store(0)
		time.Sleep(time.Minute)
		if got := asked.Load(); got > 61 {
			t.Errorf("asked %d times a minute, want 60", got)
		}
		n.busy.Store(false)
		time.Sleep(longBusyInterval)
		wantReady(t, p, 1)
		if s := p.Status(); s.Problem != "" {
			t.Errorf("Status = %+v, want no problem any more", s)
		}
		cancel()
		<-done
	})
}

// TestCloseIsBounded: a plugin that hangs does not keep the daemon from stopping.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.network.Before = func(ctx context.Context, verb, _ string) error {
			if verb == "teardown" {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		}
		p := n.pool(2)
		stop := n.run(t, p)
		synctest.Wait()
		began := time.Now()
		stop()
		if took := time.Since(began); took != closeTimeout {
			t.Errorf("the end took %v, want %v", took, closeTimeout)
		}
	})
}
