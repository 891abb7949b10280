package nri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/podd-project/podd/sandbox/lifecycle"
)

// TestOnlyPoddsUserConnects: another user's process is refused even if it could open the socket.
func TestOnlyPoddsUserConnects(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	own, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if peer, err := peerOf(accepted); err != nil || int(peer.Pid) != os.Getpid() {
		t.Errorf("peerOf = %v, %v, want this process", peer, err)
	}
	if _, err := peerOf(&net.TCPConn{}); err == nil {
		t.Error("peerOf a TCP connection succeeded")
	}
	n := newNode(t, nil, func(c *Config) { c.RegistrationTimeout = time.Minute })
	for _, path := range []string{filepath.Dir(filepath.Dir(n.socket)), filepath.Dir(n.socket), n.socket} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	out, err := asOtherUser(t, n.socket)
	if took := time.Since(begin); err != nil || string(out) != "connected, closed" || took > 10*time.Second {
		t.Errorf("a process of user 65534: %q, %v after %v, want its connection closed at once", out, err, took)
	}
}

// asOtherUser connects to a socket as user 65534, and returns what became of it.
func asOtherUser(t *testing.T, socket string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "perl", "-MIO::Socket::UNIX", "-e", `
		my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die $!;
		print "connected, ", sysread($s, my $b, 1) ? "answered" : "closed"`, socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd.CombinedOutput()
}

// TestPluginThatDoesNotRead: a write to it ends after a while, so that it is disconnected and no goroutine is left.
func TestPluginThatDoesNotRead(t *testing.T) {
	ours, theirs, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	start := time.Now()
	for err == nil {
		_, err = boundedConn{ours}.Write(make([]byte, 1<<20))
	}
	if took := time.Since(start); !errors.Is(err, os.ErrDeadlineExceeded) || took > 2*writeLimit+time.Second {
		t.Errorf("Write = %v after %v, want the end of the time for one write, %v", err, took, writeLimit)
	}
}

func socketPair() (a, b net.Conn, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	var conns []net.Conn
	for _, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			return nil, nil, err
		}
		conns = append(conns, c)
	}
	return conns[0], conns[1], nil
}

// TestManyUpdatesAtOnce: a plugin that asks for more than is done in time is disconnected.
func TestManyUpdatesAtOnce(t *testing.T) {
	n := newNode(t, nil, nil)
	end := make(chan struct{})
	n.engine.update = func(string, Resources) error { <-end; return nil }
	p := n.connect(t, &testPlugin{})
	one := n.joined()[0]
	var asked sync.WaitGroup
	for i := range updatesLength + 10 {
		u := &api.ContainerUpdate{ContainerId: "c0"}
		u.SetLinuxCPUShares(2)
		asked.Go(func() { p.stub.UpdateContainers([]*api.ContainerUpdate{u}) })
		// Else it could be disconnected because of its unread frames. One request is under way.
		waitFor(t, "the request to be read", func() bool { return len(one.updates) >= min(i, updatesLength) })
	}
	waitFor(t, "the plugin to be disconnected", func() bool { return len(n.Status().Plugins) == 0 })
	if <-one.closed; !errdefs.IsResourceExhausted(one.reason) {
		t.Errorf("the plugin was disconnected because of %v, want its updates", one.reason)
	}
	close(end)
	asked.Wait()
}

// TestUpdatesInOrder: what a plugin asks for one container is done in the order in which it asked.
func TestUpdatesInOrder(t *testing.T) {
	n := newNode(t, nil, nil)
	shares := uint64(10)
	n.connect(t, &testPlugin{stop: func(*api.Container) []*api.ContainerUpdate {
		u := &api.ContainerUpdate{ContainerId: "c0"}
		shares++
		u.SetLinuxCPUShares(shares)
		return []*api.ContainerUpdate{u}
	}})
	var want []string
	for i := range 50 {
		id := fmt.Sprint("c", i+1)
		n.announceContainer(id)
		n.PostContainer(lifecycle.Stopped, newContainer(id, newPod("p1")))
		want = append(want, fmt.Sprintf("c0 shares=%d", 11+i))
	}
	waitFor(t, "the updates", func() bool { return len(n.engine.updated()) == len(want) })
	if got := n.engine.updated(); !slices.Equal(got, want) {
		t.Errorf("updates %q, want %q", got, want)
	}
}

// TestConcurrentCreations: a plugin gets one request at a time, and each caller its own answer.
func TestConcurrentCreations(t *testing.T) {
	n := newNode(t, nil, func(c *Config) { c.RequestTimeout = time.Minute })
	var mu sync.Mutex
	inside := 0
	n.connect(t, &testPlugin{create: func(_ *api.PodSandbox, c *api.Container) (
		*api.ContainerAdjustment, []*api.ContainerUpdate, error,
	) {
		mu.Lock()
		inside++
		if inside > 1 {
			t.Error("the plugin has two requests at once")
		}
		mu.Unlock()
		a := &api.ContainerAdjustment{}
		a.AddEnv("ID", c.GetId())
		mu.Lock()
		inside--
		mu.Unlock()
		return a, nil, nil
	}})
	var creations sync.WaitGroup
	for i := range 40 {
		creations.Go(func() {
			c := newCreation(fmt.Sprint("c", i))
			if _, err := n.Create(t.Context(), c); err != nil {
				t.Errorf("Create = %v", err)
			}
			if want := fmt.Sprint("ID=c", i); !slices.Contains(c.Spec.Process.Env, want) {
				t.Errorf("environment %q, want %s", c.Spec.Process.Env, want)
			}
		})
	}
	creations.Wait()
}

// TestCallerGivesUp: a request whose caller has given up while it waited is not sent any more.
func TestCallerGivesUp(t *testing.T) {
	n := newNode(t, nil, func(c *Config) { c.RequestTimeout = time.Minute })
	end, reached := make(chan struct{}), make(chan struct{})
	p := n.connect(t, &testPlugin{before: func(verb string) error {
		if verb == "StopContainer" {
			close(reached)
			<-end
		}
		return nil
	}})
	n.announceContainer("c0")
	n.PostContainer(lifecycle.Stopped, newContainer("c0", newPod("p1")))
	<-reached
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the caller has gone")
	failed := make(chan error, 1)
	go func() {
		_, err := n.Create(ctx, newCreation("c1"))
		failed <- err
	}()
	waitFor(t, "the creation to wait", func() bool { return n.Status().Plugins[0].Waiting == 1 })
	cancel(gone)
	if err := <-failed; !errors.Is(err, gone) {
		t.Errorf("Create = %v, want %v", err, gone)
	}
	close(end)
	if err := n.RunPod(t.Context(), newPod("p9")); err != nil {
		t.Fatal(err)
	}
	p.awaitTold(t, "StopContainer c0", "RunPodSandbox p9")
}

// TestClosedPluginDoesNotJoin: a plugin that disconnects while podd configures it is never listed.
func TestClosedPluginDoesNotJoin(t *testing.T) {
	n := newNode(t, nil, nil)
	one := &plugin{index: "10", base: "gone", closed: make(chan struct{})}
	one.close(errClosed)
	n.leave(one)
	if err := n.join(one); !errdefs.IsUnavailable(err) {
		t.Errorf("join = %v, want unavailable", err)
	}
	if got := n.Status().Plugins; len(got) != 0 {
		t.Errorf("plugins = %+v, want none", got)
	}
}

// failingConfigure is a plugin that cannot be configured.
type failingConfigure struct{ launchedPlugin }

func (*failingConfigure) Configure(context.Context, string, string, string) (stub.EventMask, error) {
	return 0, errors.New("bad configuration")
}

// TestPluginThatCannotBeConfigured does not join.
func TestPluginThatCannotBeConfigured(t *testing.T) {
	n := newNode(t, nil, nil)
	s, err := stub.New(&failingConfigure{}, stub.WithConnection(dial(t, n)), stub.WithPluginName("bad"),
		stub.WithPluginIdx("10"), stub.WithOnClose(func() {}), stub.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err == nil {
		t.Error("the plugin started")
	}
	waitFor(t, "its connection to be closed", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.connections == 0 })
	if got := n.Status().Plugins; len(got) != 0 {
		t.Errorf("plugins = %+v, want none", got)
	}
	if _, err := n.Create(t.Context(), newCreation("c1")); err != nil {
		t.Errorf("Create = %v, want none", err)
	}
}
