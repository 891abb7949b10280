package streaming

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/gorilla/websocket"
	"k8s.io/client-go/util/exec"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var upgradeSPDYHeaders = map[string]string{"Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v4.channel.k8s.io"}

func status(t *testing.T, u string, headers map[string]string) int {
	t.Helper()
	c, resp := dialUpgrade(t, u, headers)
	c.Close()
	return resp.StatusCode
}

func TestURLs(t *testing.T) {
	r := start(t, backend{})
	for want, u := range map[string]string{
		"exec":        r.execURL("secret", "argument"),
		"attach":      r.url(r.Attach(&cri.AttachRequest{ContainerId: "c1", Stdout: true})),
		"portforward": r.forwardURL(),
	} {
		parsed, err := url.Parse(u)
		if err != nil || parsed.Scheme != "http" || parsed.Host != r.Addr().String() || !strings.HasPrefix(parsed.Path, "/"+want+"/") {
			t.Errorf("%s: %s", want, u)
		}
		if strings.Contains(u, "secret") || strings.Contains(u, "c1") || parsed.RawQuery != "" {
			t.Errorf("%s tells about its request: %s", want, u)
		}
	}
}

func TestBaseURL(t *testing.T) {
	for _, c := range []struct {
		addr string
		tls  bool
		want string
	}{
		{"127.0.0.1:80", false, "http://127.0.0.1:80"},
		{"[::1]:80", false, "http://[::1]:80"},
		{"0.0.0.0:80", true, "https://127.0.0.1:80"},
		{"[::]:80", true, "https://[::1]:80"},
		{"192.0.2.1:80", true, "https://192.0.2.1:80"},
	} {
		addr, err := net.ResolveTCPAddr("tcp", c.addr)
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{}
		if c.tls {
			cfg.TLSCertFile, cfg.TLSKeyFile = "c", "k"
		}
		if got := baseURL(cfg, addr); got != c.want {
			t.Errorf("%s: %s", c.addr, got)
		}
	}
}

func TestRequestsThatMakeNoSense(t *testing.T) {
	r := start(t, backend{})
	many := make([]int32, 128)
	for i := range many {
		many[i] = int32(i + 1)
	}
	for name, err := range map[string]error{
		"terminal with stderr":     second(r.Exec(&cri.ExecRequest{Tty: true, Stdout: true, Stderr: true})),
		"no stream":                second(r.Exec(&cri.ExecRequest{Tty: true})),
		"attach terminal, stderr":  second(r.Attach(&cri.AttachRequest{Tty: true, Stderr: true})),
		"attach no stream":         second(r.Attach(&cri.AttachRequest{})),
		"port 0":                   second(r.PortForward(&cri.PortForwardRequest{Port: []int32{0}})),
		"port 65536":               second(r.PortForward(&cri.PortForwardRequest{Port: []int32{80, 65536}})),
		"more ports than channels": second(r.PortForward(&cri.PortForwardRequest{Port: many})),
	} {
		if !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestTokens: a token opens one session of its own kind, and nothing else does.
func TestTokens(t *testing.T) {
	b, started, _ := held()
	r := start(t, b)
	base := "http://" + r.Addr().String()
	used := r.execURL()
	dialWebSocket(t, used, "v5.channel.k8s.io")
	recv(t, "the session", started)
	wrong := r.execURL()
	for name, c := range map[string]struct {
		url     string
		headers map[string]string
		want    int
	}{
		"used":         {used, upgradeSPDYHeaders, 404},
		"unknown":      {base + "/exec/ABCDEFGHIJKLMNOPQRSTUVWXYZ", upgradeSPDYHeaders, 404},
		"short":        {base + "/exec/A", upgradeSPDYHeaders, 404},
		"none":         {base + "/exec/", upgradeSPDYHeaders, 404},
		"root":         {base + "/", upgradeSPDYHeaders, 404},
		"traversal":    {base + "/exec/..%2fexec", upgradeSPDYHeaders, 307},
		"long":         {base + "/exec/" + strings.Repeat("A", 60_000), upgradeSPDYHeaders, 404},
		"too long":     {base + "/exec/" + strings.Repeat("A", 100_000), upgradeSPDYHeaders, 431},
		"other kind":   {strings.Replace(wrong, "exec", "attach", 1), upgradeSPDYHeaders, 404},
		"no protocol":  {r.execURL(), map[string]string{"Upgrade": "SPDY/3.1"}, 400},
		"bad protocol": {r.execURL(), map[string]string{"Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v9.channel.k8s.io"}, 403},
		"bad upgrade":  {r.execURL(), map[string]string{"Upgrade": "h2c", "X-Stream-Protocol-Version": "v4.channel.k8s.io"}, 400},
	} {
		if got := status(t, c.url, c.headers); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if got := status(t, wrong, upgradeSPDYHeaders); got != 404 {
		t.Errorf("a token shown at the wrong place still works: %d", got)
	}
}

// TestPlainRequests do not use a token up.
func TestPlainRequests(t *testing.T) {
	b, started, _ := held()
	r := start(t, b)
	u := r.execURL()
	defer http.DefaultClient.CloseIdleConnections()
	for method, want := range map[string]int{"GET": 400, "POST": 400, "PUT": 405, "DELETE": 405} {
		req, _ := http.NewRequest(method, u, nil)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s", method, resp.Status)
		}
	}
	dialWebSocket(t, u, "v5.channel.k8s.io")
	recv(t, "the session", started)
}

func TestTokenExpiresAtTheServer(t *testing.T) {
	r := start(t, backend{}, func(c *Config) { c.TokenTTL = time.Millisecond })
	u := r.execURL()
	eventually(t, "the token has expired", func() bool { return !r.tickets.valid(u[strings.LastIndex(u, "/")+1:]) })
	if got := status(t, u, upgradeSPDYHeaders); got != 404 {
		t.Errorf("expired token: %d", got)
	}
}

// TestFloodOfTokens is refused at its bound.
func TestFloodOfTokens(t *testing.T) {
	r := start(t, backend{}, func(c *Config) { c.MaxTokens = 100 })
	for i := range 1000 {
		_, err := r.Exec(&cri.ExecRequest{ContainerId: "c1", Stdout: true})
		if i < 100 && err != nil || i >= 100 && !errors.Is(err, errdefs.ErrResourceExhausted) {
			t.Fatalf("request %d: %v", i, err)
		}
	}
}

// TestSessionLimit: one too many is told so, and its URL works when there is room.
func TestSessionLimit(t *testing.T) {
	b, started, _ := held()
	r := start(t, b, func(c *Config) { c.MaxSessions = 2 })
	first := dialWebSocket(t, r.execURL(), "v5.channel.k8s.io")
	dialWebSocket(t, r.execURL(), "v5.channel.k8s.io")
	recv(t, "a session", started)
	recv(t, "a session", started)
	third := r.execURL()
	if got := status(t, third, upgradeSPDYHeaders); got != http.StatusServiceUnavailable {
		t.Fatalf("session over the limit: %d", got)
	}
	first.Close()
	eventually(t, "there is room", func() bool {
		ws, _, err := (&websocket.Dialer{Subprotocols: []string{"v5.channel.k8s.io"}}).Dial("ws"+strings.TrimPrefix(third, "http"), nil)
		if err == nil {
			t.Cleanup(func() { ws.Close() })
		}
		return err == nil
	})
	recv(t, "the third session", started)
}

// TestPendingLimit: connections that ask nothing are few, and take no place from sessions.
func TestPendingLimit(t *testing.T) {
	b, started, _ := held()
	r := start(t, b, func(c *Config) { c.MaxPending, c.HeaderTimeout = 3, time.Hour })
	ws := dialWebSocket(t, r.execURL(), "v5.channel.k8s.io")
	recv(t, "the session", started)
	var open []net.Conn
	for range 3 {
		open = append(open, dialRaw(t, r))
	}
	eventually(t, "all three are counted", func() bool { return r.pending.Load() == 3 })
	over := dialRaw(t, r)
	over.SetReadDeadline(time.Now().Add(patience))
	if _, err := over.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the fourth connection: %v", err)
	}
	over.Close()
	for _, c := range open {
		c.Close()
	}
	eventually(t, "there is room again", func() bool { return r.pending.Load() == 0 })
	if got := status(t, "http://"+r.Addr().String()+"/exec/x", upgradeSPDYHeaders); got != 404 {
		t.Errorf("after the flood: %d", got)
	}
	if err := ws.WriteControl(websocket.PingMessage, nil, noDeadline); err != nil {
		t.Errorf("the session: %v", err)
	}
}

// TestSlowLoris: clients that dribble a request, a body, or nothing, are cut off.
func TestSlowLoris(t *testing.T) {
	r := start(t, backend{}, func(c *Config) { c.HeaderTimeout = 100 * time.Millisecond })
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
				t.Errorf("connection stayed: %v", err)
			}
		})
	}
}

// TestCreationTimeout: a client that opens too few streams is told on the one that can carry it.
func TestCreationTimeout(t *testing.T) {
	r := start(t, backend{}, func(c *Config) { c.CreationTimeout = time.Second })
	c, _ := dialSPDY(t, r.execURL(), "v4.channel.k8s.io")
	status := openStream(t, c, "streamType", "error")
	openStream(t, c, "streamType", "stdout")
	got, err := io.ReadAll(status)
	if err != nil || !strings.Contains(string(got), "did not open its streams in time") {
		t.Errorf("client was told %q, %v", got, err)
	}
	r.noSession()
}

// TestSPDYRefusedStreams: what was not asked for, or comes twice, is reset; so is what comes when all is complete.
func TestSPDYRefusedStreams(t *testing.T) {
	b, started, _ := held()
	r := start(t, b)
	c, _ := dialSPDY(t, r.url(r.Exec(&cri.ExecRequest{ContainerId: "c1", Stdout: true})), "v4.channel.k8s.io")
	openStream(t, c, "streamType", "error")
	for _, kind := range []string{"stdin", "stderr", "resize", "error", "", "x"} {
		if _, err := c.CreateStream(http.Header{"Streamtype": {kind}}); err == nil {
			t.Errorf("stream type %q was accepted", kind)
		}
	}
	openStream(t, c, "streamType", "stdout")
	recv(t, "the session", started)
	if _, err := c.CreateStream(http.Header{"Streamtype": {"stdout"}}); err == nil {
		t.Error("a second stdout was accepted")
	}
}

// TestOldSPDYVersions have no JSON outcome, and the oldest no resizing.
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
			c, _ := dialSPDY(t, r.url(r.Exec(&cri.ExecRequest{ContainerId: "c1", Cmd: []string{version}, Stdout: true, Tty: true})), version)
			status := openStream(t, c, "streamType", "error")
			openStream(t, c, "streamType", "stdout")
			if version == "v3.channel.k8s.io" {
				openStream(t, c, "streamType", "resize")
			}
			if got, err := io.ReadAll(status); string(got) != "command terminated with non-zero exit code: 7" {
				t.Errorf("outcome %q, %v", got, err)
			}
		})
	}
}

// TestIdle: a session without bytes is ended and the client told; one with bytes is not, and neither do the pings
// of client-go nor the server's heartbeat count as bytes.
func TestIdle(t *testing.T) {
	const idle = 600 * time.Millisecond
	for _, tr := range transports() {
		t.Run(tr.name, func(t *testing.T) {
			b, _, ended := held()
			r := start(t, b, func(c *Config) { c.IdleTimeout = idle })
			began := time.Now()
			got := tr.stream(t, r.execURL(), blocked{t.Context()}, false, nil)
			if got.err == nil || !strings.Contains(got.err.Error(), "idle for too long") || time.Since(began) < idle {
				t.Errorf("client was told %v after %v", got.err, time.Since(began))
			}
			wantCause(t, ended, errIdle)

			b.exec = func(_ context.Context, _ string, _ []string, s Streams) (int, error) {
				for range 20 {
					fmt.Fprint(s.Stdout, ".")
					<-time.After(idle / 10)
				}
				return 7, nil
			}
			r = start(t, b, func(c *Config) { c.IdleTimeout = idle })
			got = tr.stream(t, r.execURL(), blocked{t.Context()}, false, nil)
			var exit exec.CodeExitError
			if !errors.As(got.err, &exit) || len(got.stdout) != 20 {
				t.Errorf("session in use: %+v", got)
			}
		})
	}
}

// blocked never gives input.
type blocked struct{ ctx context.Context }

func (b blocked) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, io.EOF
}

// TestCloseEndsSessions and tells clients, lest they take it for success; then nothing more is given out.
func TestCloseEndsSessions(t *testing.T) {
	for _, tr := range transports() {
		t.Run(tr.name, func(t *testing.T) {
			b, started, ended := held()
			r := start(t, b)
			told := make(chan error, 1)
			u := r.execURL()
			go func() { told <- tr.stream(t, u, blocked{t.Context()}, false, nil).err }()
			recv(t, "the session", started)
			unused := r.execURL()
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
			wantCause(t, ended, errClosing)
			if err := recv(t, "the client to end", told); err == nil || !strings.Contains(err.Error(), "server is closing") {
				t.Errorf("client was told %v", err)
			}
			if _, err := r.Exec(&cri.ExecRequest{Stdout: true}); !errors.Is(err, errdefs.ErrUnavailable) {
				t.Errorf("URL from a closed server: %v", err)
			}
			if r.tickets.valid(unused[strings.LastIndex(unused, "/")+1:]) {
				t.Error("a closed server keeps tokens")
			}
		})
	}
}

// TestCloseWaits for backends, but no longer than its context.
func TestCloseWaits(t *testing.T) {
	release := make(chan struct{})
	b, started, _ := held()
	stubborn := b
	stubborn.exec = func(ctx context.Context, id string, cmd []string, s Streams) (int, error) {
		b.Exec(ctx, id, cmd, s)
		<-release
		return 0, nil
	}
	r := start(t, stubborn)
	dialWebSocket(t, r.execURL(), "v5.channel.k8s.io")
	recv(t, "the session", started)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close with a stubborn backend: %v", err)
	}
	close(release)
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	s, err := New(DefaultConfig(), backend{})
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

// TestCloseWithoutServe releases the port, also when Serve comes later.
func TestCloseWithoutServe(t *testing.T) {
	leftovers := watchLeaks(t)
	s, err := New(DefaultConfig(), backend{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.Port = s.Addr().(*net.TCPAddr).Port
	if _, err := New(cfg, backend{}); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("two servers on one port: %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	again, err := New(cfg, backend{})
	if err != nil {
		t.Fatal(err)
	}
	again.Close(t.Context())
	if err := s.Serve(t.Context()); err != nil {
		t.Error(err)
	}
	leftovers()
}
