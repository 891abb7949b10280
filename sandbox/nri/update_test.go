package nri

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	logtest "github.com/sirupsen/logrus/hooks/test"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/lifecycle"
)

// setShares asks for CPU shares of a container.
func setShares(id string, n uint64) *api.ContainerUpdate {
	u := &api.ContainerUpdate{ContainerId: id}
	u.SetLinuxCPUShares(n)
	return u
}

// TestManyFailingUpdates: however many updates of a message fail, they are one line of the log and one error.
func TestManyFailingUpdates(t *testing.T) {
	n := newNode(t, nil, nil)
	log, lines := logtest.NewNullLogger()
	n.Plugins.log = log
	n.engine.update = func(id string, _ Resources) error { return errors.New("cannot update " + id) }
	list := make([]*api.ContainerUpdate, maxUpdates)
	for i := range list {
		list[i] = setShares(fmt.Sprint("c", i), 2)
	}
	list[0].IgnoreFailure = true
	failed, err := n.Plugins.update(t.Context(), list)
	if len(failed) != maxUpdates-1 || err == nil || !strings.Contains(err.Error(), "cannot update c1") {
		t.Errorf("update = %d failed, %v, want %d and the error of c1", len(failed), err, maxUpdates-1)
	}
	entries := lines.AllEntries()
	if len(entries) != 1 || entries[0].Data["failed"] != maxUpdates {
		t.Errorf("%d lines of the log, want one with %d failures", len(entries), maxUpdates)
	}
	done := len(n.engine.updated())
	list = append(list, setShares("more", 2))
	if failed, err = n.Plugins.update(t.Context(), list); len(failed) != len(list) || !errdefs.IsResourceExhausted(err) {
		t.Errorf("update of too many = %d failed, %v, want all to be refused", len(failed), err)
	}
	if more := len(n.engine.updated()) - done; more != 0 {
		t.Errorf("%d of too many updates were made, want none", more)
	}
}

// TestUpdateWhileCreating: updates of a container that is being created are made when it is, in their order.
func TestUpdateWhileCreating(t *testing.T) {
	n := newNode(t, nil, nil)
	first, proceed := make(chan struct{}), make(chan struct{})
	n.engine.update = func(_ string, r Resources) error {
		if r.CRI.GetCpuShares() == 10 {
			close(first)
			<-proceed
		}
		return nil
	}
	p := n.connect(t, &testPlugin{})
	ask := func(shares uint64) (failed []*api.ContainerUpdate) {
		t.Helper()
		failed, err := p.stub.UpdateContainers([]*api.ContainerUpdate{setShares("c1", shares)})
		if err != nil {
			t.Fatal(err)
		}
		return failed
	}
	c := newCreation("c1")
	if _, err := n.Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range uint64(maxPostponed) {
		if failed := ask(10 + i); len(failed) > 0 {
			t.Fatalf("update %d failed, want it postponed", i)
		}
		want = append(want, fmt.Sprintf("c1 shares=%d", 10+i))
	}
	if failed := ask(9); len(failed) != 1 {
		t.Errorf("%d failed beyond %d postponed updates, want 1", len(failed), maxPostponed)
	}
	if got := n.engine.updated(); len(got) > 0 {
		t.Errorf("updates %q of a container that is being created, want none", got)
	}
	go n.PostContainer(lifecycle.Created, c.Container)
	<-first
	if failed := ask(100); len(failed) > 0 {
		t.Error("an update failed while the postponed ones are made, want it after them")
	}
	want = append(want, "c1 shares=100")
	close(proceed)
	waitFor(t, "the updates", func() bool { return len(n.engine.updated()) == len(want) })
	if got := n.engine.updated(); !slices.Equal(got, want) {
		t.Errorf("updates\n%q, want\n%q", got, want)
	}
	waitFor(t, "the end of the creation", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return !n.containers["c1"].creating
	})
	if ask(7); n.engine.updated()[len(want)] != "c1 shares=7" {
		t.Errorf("updates %q, want one at once when the container exists", n.engine.updated())
	}
}

// TestUpdatesOfConcurrentCreations: what a plugin asks for a container while others are created is made in the order of
// its answers: it shares out CPUs, and the last word counts.
func TestUpdatesOfConcurrentCreations(t *testing.T) {
	const creations = 20
	n := newNode(t, nil, func(c *Config) { c.RequestTimeout = time.Minute })
	all := make(chan struct{})
	n.engine.update = func(_ string, r Resources) error {
		if r.CRI.GetCpuShares() == 10 {
			<-all
		}
		return nil
	}
	answered := 0
	n.connect(t, &testPlugin{create: func(*api.PodSandbox, *api.Container) (
		*api.ContainerAdjustment, []*api.ContainerUpdate, error,
	) {
		u := setShares("c0", uint64(10+answered))
		if answered++; answered == creations {
			close(all)
		}
		return nil, []*api.ContainerUpdate{u}, nil
	}})
	var want []string
	var work sync.WaitGroup
	for i := range creations {
		want = append(want, fmt.Sprintf("c0 shares=%d", 10+i))
		work.Go(func() {
			if _, err := n.Create(t.Context(), newCreation(fmt.Sprint("c", i+1))); err != nil {
				t.Errorf("Create = %v", err)
			}
		})
	}
	work.Wait()
	if got := n.engine.updated(); !slices.Equal(got, want) {
		t.Errorf("updates\n%q, want\n%q", got, want)
	}
}

// TestTurnEnds: a request that fails gives way to the updates after it, and one whose caller has given up takes no
// turn.
func TestTurnEnds(t *testing.T) {
	n := newNode(t, nil, nil)
	n.connect(t, &testPlugin{
		create: func(*api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
			a := &api.ContainerAdjustment{}
			a.AddMount(&api.Mount{Destination: "/"}) // is refused
			return a, []*api.ContainerUpdate{setShares("c0", 2)}, nil
		},
		update: func(*api.Container, *api.LinuxResources) []*api.ContainerUpdate {
			return []*api.ContainerUpdate{setShares("c0", 3)}
		},
	})
	refusing := true
	n.connect(t, &testPlugin{index: "20", before: func(verb string) error {
		if refusing && verb == "UpdateContainer" {
			return errors.New("I do not want that")
		}
		return nil
	}})
	one := n.joined()[0]
	limits, container := &cri.LinuxContainerResources{CpuShares: 7}, newContainer("c1", newPod("p1"))
	if _, err := n.Create(t.Context(), newCreation("c1")); !errdefs.IsInvalidArgument(err) {
		t.Errorf("Create = %v, want an invalid argument", err)
	}
	if _, _, err := n.Update(t.Context(), container, limits); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Update = %v, want the refusal of the second plugin", err)
	}
	refusing = false
	failed := errors.New("the runtime cannot set it")
	_, then, err := n.Update(t.Context(), container, limits)
	if err != nil {
		t.Fatal(err)
	}
	if err := then(t.Context(), failed); !errors.Is(err, failed) {
		t.Errorf("then = %v, want %v", err, failed)
	}
	m := &merge{}
	m.endTurn()
	m.reserve(one, []*api.ContainerUpdate{setShares("c0", 4)})
	if m.turn != nil {
		t.Error("a request that has ended takes a turn")
	}
	_, then, err = n.Update(t.Context(), container, limits)
	if err = then(t.Context(), err); err != nil || !slices.Equal(n.engine.updated(), []string{"c0 shares=3"}) {
		t.Errorf("then = %v, updates %q, want that of the last request", err, n.engine.updated())
	}
}

// TestTurnDoesNotCome: a request does not wait for its turn if its caller has given up, or the plugin has disconnected.
func TestTurnDoesNotCome(t *testing.T) {
	for _, disconnects := range []bool{false, true} {
		n := newNode(t, nil, nil)
		begun, proceed := make(chan struct{}), make(chan struct{})
		n.engine.update = func(id string, _ Resources) error {
			if id == "stuck" {
				close(begun)
				<-proceed
			}
			return nil
		}
		p := n.connect(t, &testPlugin{create: func(_ *api.PodSandbox, c *api.Container) (
			*api.ContainerAdjustment, []*api.ContainerUpdate, error,
		) {
			return nil, []*api.ContainerUpdate{setShares(c.GetName(), 2)}, nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		create := func(name string) chan error {
			c := newCreation("new-" + name)
			c.Container.Config.Metadata.Name = name
			done := make(chan error, 1)
			go func() { _, err := n.Create(ctx, c); done <- err }()
			return done
		}
		first := create("stuck")
		<-begun
		second := create("c0")
		waitFor(t, "the second creation to wait", func() bool { return len(n.joined()[0].updates) == 1 })
		if disconnects {
			p.conn.Close()
		} else {
			cancel()
		}
		if err := <-second; errors.Is(err, context.Canceled) == disconnects {
			t.Errorf("disconnects %v: Create = %v, want none if the plugin disconnects, or else that of the caller",
				disconnects, err)
		}
		close(proceed)
		<-first
		cancel()
	}
}

// TestUpdateAfterCreation: an update of a container that is created is made at once.
func TestUpdateAfterCreation(t *testing.T) {
	n := newNode(t, nil, nil)
	n.announceContainer("c1")
	n.PostContainer(lifecycle.Created, newContainer("c1", newPod("p1")))
	if _, err := n.Plugins.update(t.Context(), []*api.ContainerUpdate{setShares("c1", 3)}); err != nil {
		t.Fatal(err)
	}
	if got := n.engine.updated(); !slices.Equal(got, []string{"c1 shares=3"}) {
		t.Errorf("updates %q, want that of c1", got)
	}
}

// TestUpdateOfFailedCreation: what waited for a creation that fails is dropped.
func TestUpdateOfFailedCreation(t *testing.T) {
	n := newNode(t, nil, nil)
	c := newCreation("c1")
	n.announceContainer("c1")
	if _, err := n.Plugins.update(t.Context(), []*api.ContainerUpdate{setShares("c1", 3)}); err != nil {
		t.Fatal(err)
	}
	n.PostContainer(lifecycle.Deleted, c.Container)
	n.PostContainer(lifecycle.Created, c.Container)
	if got := n.engine.updated(); len(got) > 0 {
		t.Errorf("updates %q, want none", got)
	}
}
