package streaming

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/gorilla/websocket"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/util/exec"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/budget"
)

// TestSessionLimit: a session above the limit gets 503, and its URL works once another session has ended.
func TestSessionLimit(t *testing.T) {
	b, started, _ := held()
	r := start(t, b, func(c *setup) { c.MaxSessions = 2 })
	first := dialWebSocket(t, r.execURL(), "v5.channel.k8s.io")
	dialWebSocket(t, r.execURL(), "v5.channel.k8s.io")
	recv(t, "a session", started)
	recv(t, "a session", started)
	third := r.execURL()
	if got := status(t, third, upgradeSPDYHeaders); got != http.StatusServiceUnavailable {
		t.Fatalf("session above the limit: status %d, want 503", got)
	}
	first.Close()
	dialer := websocket.Dialer{Subprotocols: []string{"v5.channel.k8s.io"}}
	eventually(t, "the third session is accepted", func() bool {
		ws, _, err := dialer.Dial("ws"+strings.TrimPrefix(third, "http"), nil)
		if err == nil {
			t.Cleanup(func() { ws.Close() })
		}
		return err == nil
	})
	recv(t, "the third session", started)
}

// TestSessionLimitPerPod: a pod cannot use the sessions of others, in whatever container they run.
func TestSessionLimitPerPod(t *testing.T) {
	b, started, _ := held()
	r := start(t, b, func(c *setup) { c.MaxSessionsPerPod = 2 })
	exec := func(id string) string {
		return r.url(r.Exec("", &cri.ExecRequest{ContainerId: id, Cmd: []string{"x"}, Stdin: true, Stdout: true}))
	}
	for _, id := range []string{"p1/a", "p1/b"} {
		dialWebSocket(t, exec(id), "v5.channel.k8s.io")
		recv(t, "a session", started)
	}
	forward := r.url(r.PortForward("", &cri.PortForwardRequest{PodSandboxId: "p1"}))
	for _, refused := range []string{exec("p1/a"), forward} {
		if got := status(t, refused, upgradeSPDYHeaders); got != http.StatusServiceUnavailable {
			t.Errorf("third session of the pod: status %d, want 503", got)
		}
	}
	dialWebSocket(t, exec("p2/a"), "v5.channel.k8s.io")
	recv(t, "a session of another pod", started)
}

// TestPendingLimit: connections without a request are bounded, and do not count as sessions. A new one replaces the
// oldest one.
func TestPendingLimit(t *testing.T) {
	b, started, _ := held()
	r := start(t, b, func(c *setup) { c.pending, c.header = 3, time.Hour })
	ws := dialWebSocket(t, r.execURL(), "v5.channel.k8s.io")
	recv(t, "the session", started)
	inUse := func() int64 { return r.budgets.PendingConnections.Usage().InUse }
	var open []net.Conn
	for i := range 3 {
		open = append(open, dialRaw(t, r))
		eventually(t, "it is counted", func() bool { return inUse() == int64(i+1) })
	}
	if got := status(t, "http://"+r.Addr().String()+"/exec/x", upgradeSPDYHeaders); got != 404 {
		t.Errorf("request with three idle connections: status %d, want 404", got)
	}
	open[0].SetReadDeadline(time.Now().Add(patience))
	if _, err := open[0].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read from the oldest connection: %v, want EOF", err)
	}
	for _, c := range open {
		c.Close()
	}
	eventually(t, "all connections are released", func() bool { return inUse() == 0 })
	if err := ws.WriteControl(websocket.PingMessage, nil, noDeadline); err != nil {
		t.Errorf("ping in the open session: %v, want no error", err)
	}
}

// TestIdleConnections: a user who opens connections all the time, three times as many as are allowed, does not keep
// others from running commands: not another user, and not the same one.
func TestIdleConnections(t *testing.T) {
	for name, uid := range map[string]int{"another user": 65534, "the same user": os.Getuid()} {
		t.Run(name, func(t *testing.T) {
			if os.Getuid() != 0 && uid != os.Getuid() {
				t.Skip("needs root, to open connections as another user")
			}
			r := start(t, pod(), func(c *setup) { c.pending = 100 })
			flood(t, r, uid, 300)
			eventually(t, "connections are refused", func() bool { return r.budgets.PendingConnections.Usage().Refused > 300 })
			for range 50 {
				if got := status(t, "http://"+r.Addr().String()+"/exec/x", upgradeSPDYHeaders); got != 404 {
					t.Fatalf("status %d, want 404", got)
				}
			}
			if most := r.budgets.PendingConnections.Usage().Peak; most > 100 {
				t.Errorf("connections = %d, want at most 100", most)
			}
		})
	}
}

// flood keeps n idle connections open as the user until the test ends: the oldest ones are closed and opened again.
func flood(t *testing.T, r running, uid, n int) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-stopped })
	go func() {
		defer close(stopped)
		runtime.LockOSThread() // not unlocked: the thread has the uid of the user, and ends with the goroutine
		_, _ = unix.SetfsuidRetUid(uid)
		conns := make([]net.Conn, n)
		defer func() {
			for _, c := range conns {
				if c != nil {
					c.Close()
				}
			}
		}()
		for i := 0; ; i = (i + 1) % n {
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Microsecond):
			}
			if conns[i] != nil {
				conns[i].Close()
			}
			conns[i], _ = net.Dial("tcp", r.Addr().String())
		}
	}()
}

// TestVictim: the oldest connection of the user with most of them is replaced.
func TestVictim(t *testing.T) {
	budgets := budget.New(1, 1, 4)
	p := newPendingConns(limitsOf(budgets).Pending)
	conns := map[string]net.Conn{}
	add := func(name, user string) net.Conn {
		conns[name], _ = net.Pipe()
		return p.add(conns[name], user)
	}
	for _, c := range []struct{ name, user, replaces string }{
		{"root 1", "uid 0", ""}, {"nobody 1", "uid 65534", ""}, {"nobody 2", "uid 65534", ""}, {"root 2", "uid 0", ""},
		{"nobody 3", "uid 65534", "root 1"}, // as many as root: the oldest of both
		{"nobody 4", "uid 65534", "nobody 1"}, {"root 3", "uid 0", "nobody 2"}, {"root 4", "uid 0", "root 2"},
	} {
		if got := add(c.name, c.user); got != conns[c.replaces] {
			t.Errorf("%s replaces another connection than %q", c.name, c.replaces)
		}
	}
	for _, c := range conns {
		p.remove(c)
	}
	if u := budgets.PendingConnections.Usage(); u.InUse != 0 || len(p.byUser) != 0 {
		t.Errorf("%d in use, users %v, want none", u.InUse, p.byUser)
	}
}

// TestUserOf: the uid is found over both families; of another machine, it is the address.
func TestUserOf(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		if got, want := userOf(server), fmt.Sprintf("uid %d", os.Getuid()); got != want {
			t.Errorf("%s: user = %q, want %q", address, got, want)
		}
	}
	gone := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9}
	if uid, err := socketOwner(gone, gone); err == nil {
		t.Errorf("a socket that does not exist: uid %d, want an error", uid)
	}
}

func BenchmarkUserOf(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	for b.Loop() {
		if _, err := socketOwner(client.LocalAddr().(*net.TCPAddr), client.RemoteAddr().(*net.TCPAddr)); err != nil {
			b.Fatal(err)
		}
	}
}

// TestSlowLoris: clients that send an incomplete request or nothing are disconnected.
func TestSlowLoris(t *testing.T) {
	r := start(t, backend{}, func(c *setup) { c.header = 100 * time.Millisecond })
	for name, first := range map[string]string{
		"nothing":      "",
		"request line": "GET /exec/",
		"headers":      "GET /exec/x HTTP/1.1\r\nHost: x\r\nA: b\r\n",
		"body":         "POST /exec/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc",
		"next request": "GET /exec/x HTTP/1.1\r\nHost: x\r\n\r\nGET",
		"HTTP/2":       "PRI * HTTP/2.0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := dialRaw(t, r)
			defer c.Close()
			io.WriteString(c, first)
			c.SetReadDeadline(time.Now().Add(patience))
			if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Errorf("read: %v, want a closed connection", err)
			}
		})
	}
}

// TestCreationTimeout: a client that opens too few streams gets an error on its error stream.
func TestCreationTimeout(t *testing.T) {
	r := start(t, backend{}, func(c *setup) { c.create = time.Second })
	c, _ := dialSPDY(t, r.execURL(), "v4.channel.k8s.io")
	status := openStream(t, c, "streamType", "error")
	openStream(t, c, "streamType", "stdout")
	got, err := io.ReadAll(status)
	if err != nil || !strings.Contains(string(got), "did not open its streams within 1s") {
		t.Errorf("error stream = %q, %v, want the creation timeout", got, err)
	}
	r.noSession()
}

// TestSPDYRefusedStreams: streams that were not requested are reset, and second streams of a type.
func TestSPDYRefusedStreams(t *testing.T) {
	b, started, _ := held()
	r := start(t, b)
	c, _ := dialSPDY(t, r.url(r.Exec("", &cri.ExecRequest{ContainerId: "c1", Stdout: true})), "v4.channel.k8s.io")
	openStream(t, c, "streamType", "error")
	for _, kind := range []string{"stdin", "stderr", "resize", "error", "", "x"} {
		if _, err := c.CreateStream(http.Header{"Streamtype": {kind}}); err == nil {
			t.Errorf("stream type %q was accepted, want a reset", kind)
		}
	}
	openStream(t, c, "streamType", "stdout")
	recv(t, "the session", started)
	if _, err := c.CreateStream(http.Header{"Streamtype": {"stdout"}}); err == nil {
		t.Error("a second stdout was accepted")
	}
}

// TestOldSPDYVersions: versions before 4 have no JSON outcome, version 2 no resizing.
func TestOldSPDYVersions(t *testing.T) {
	b := backend{exec: func(_ context.Context, _ string, cmd []string, s Streams) (int, error) {
		if (s.Resize != nil) != (cmd[0] == "v3.channel.k8s.io") {
			return 0, fmt.Errorf("resize is %v", s.Resize)
		}
		return 7, nil
	}}
	for _, version := range []string{"v2.channel.k8s.io", "v3.channel.k8s.io"} {
		t.Run(version, func(t *testing.T) {
			r := start(t, b)
			req := &cri.ExecRequest{ContainerId: "c1", Cmd: []string{version}, Stdout: true, Tty: true}
			c, _ := dialSPDY(t, r.url(r.Exec("", req)), version)
			status := openStream(t, c, "streamType", "error")
			openStream(t, c, "streamType", "stdout")
			if version == "v3.channel.k8s.io" {
				openStream(t, c, "streamType", "resize")
			}
			const want = "command terminated with non-zero exit code: 7"
			if got, err := io.ReadAll(status); string(got) != want {
				t.Errorf("outcome = %q, %v, want %q", got, err, want)
			}
		})
	}
}

// TestIdle: a session that moves no byte ends and the client gets the reason; one that moves bytes goes on. Pings of
// client-go and the server's heartbeat do not count.
func TestIdle(t *testing.T) {
	const idle = 600 * time.Millisecond
	for _, tr := range transports() {
		t.Run(tr.name, func(t *testing.T) {
			b, _, ended := held()
			r := start(t, b, func(c *setup) { c.IdleTimeout = idle })
			began := time.Now()
			got := tr.stream(t, r.execURL(), blocked{t.Context()}, false, nil)
			if got.err == nil || !strings.Contains(got.err.Error(), "idle for too long") || time.Since(began) < idle {
				t.Errorf("client got %v after %v, want the idle timeout after %v", got.err, time.Since(began), idle)
			}
			wantCause(t, ended, errIdle)

			b.exec = func(_ context.Context, _ string, _ []string, s Streams) (int, error) {
				for range 20 {
					fmt.Fprint(s.Stdout, ".")
					<-time.After(idle / 10)
				}
				return 7, nil
			}
			r = start(t, b, func(c *setup) { c.IdleTimeout = idle })
			got = tr.stream(t, r.execURL(), blocked{t.Context()}, false, nil)
			var exit exec.CodeExitError
			if !errors.As(got.err, &exit) || len(got.stdout) != 20 {
				t.Errorf("session in use: %+v, want 20 bytes and an exit code", got)
			}
		})
	}
}

// blocked blocks until the test ends.
type blocked struct{ ctx context.Context }

func (b blocked) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, io.EOF
}

// TestCloseEndsSessions: clients get an error, not success; afterwards no URL is issued.
func TestCloseEndsSessions(t *testing.T) {
	for _, tr := range transports() {
		t.Run(tr.name, func(t *testing.T) {
			b, started, ended := held()
			r := start(t, b)
			received := make(chan error, 1)
			u := r.execURL()
			go func() { received <- tr.stream(t, u, blocked{t.Context()}, false, nil).err }()
			recv(t, "the session", started)
			unused := r.execURL()
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
			wantCause(t, ended, errClosing)
			err := recv(t, "the client to end", received)
			if err == nil || !strings.Contains(err.Error(), "server is closing") {
				t.Errorf("client got %v, want that the server is closing", err)
			}
			if _, err := r.Exec("", &cri.ExecRequest{Stdout: true}); !errors.Is(err, errdefs.ErrUnavailable) {
				t.Errorf("Exec on a closed server: %v, want unavailable", err)
			}
			if valid(r.tickets, unused[strings.LastIndex(unused, "/")+1:]) {
				t.Error("a closed server keeps tokens")
			}
		})
	}
}

// TestCloseWaits: Close waits for backends, but no longer than its context.
func TestCloseWaits(t *testing.T) {
	release := make(chan struct{})
	b, started, _ := held()
	blocking := b
	blocking.exec = func(ctx context.Context, id string, cmd []string, s Streams) (int, error) {
		b.Exec(ctx, id, cmd, s)
		<-release
		return 0, nil
	}
	r := start(t, blocking)
	dialWebSocket(t, r.execURL(), "v5.channel.k8s.io")
	recv(t, "the session", started)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close with a blocked backend: %v, want deadline exceeded", err)
	}
	close(release)
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	s, err := New(DefaultConfig(), limitsOf(budgetsFor(DefaultConfig())), backend{}, discardLog())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	cancel()
	if err := recv(t, "Serve to return", served); err != nil {
		t.Error(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestCloseWithoutServe: Close releases the port, and a later Serve returns.
func TestCloseWithoutServe(t *testing.T) {
	leftovers := watchLeaks(t)
	s, err := New(DefaultConfig(), limitsOf(budgetsFor(DefaultConfig())), backend{}, discardLog())
	if err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.Port = s.Addr().(*net.TCPAddr).Port
	_, err = New(cfg, limitsOf(budgetsFor(cfg)), backend{}, discardLog())
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("second server on one port: %v, want address already in use", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	again, err := New(cfg, limitsOf(budgetsFor(cfg)), backend{}, discardLog())
	if err != nil {
		t.Fatal(err)
	}
	again.Close(t.Context())
	if err := s.Serve(t.Context()); err != nil {
		t.Error(err)
	}
	leftovers()
}
