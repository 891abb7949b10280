package streaming

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/sirupsen/logrus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/podd-project/podd/sandbox/budget"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// quick is the timing of sessions in tests.
var quick = timing{
	check: 20 * time.Millisecond, linger: 200 * time.Millisecond, heartbeat: 20 * time.Millisecond,
	halfClosed: realTime.halfClosed, create: realTime.create, token: realTime.token, header: realTime.header,
}

// backend is a Backend made of functions.
type backend struct {
	exec    func(ctx context.Context, id string, cmd []string, s Streams) (int, error)
	attach  func(ctx context.Context, id string, s Streams) error
	forward func(ctx context.Context, pod string, port int32, stream io.ReadWriteCloser) error
	ended   func(SessionInfo, error)
}

// PodOf: containers are named pod/container.
func (b backend) PodOf(id string) string {
	pod, _, _ := strings.Cut(id, "/")
	return pod
}

func (b backend) Exec(ctx context.Context, id string, cmd []string, s Streams) (int, error) {
	return b.exec(ctx, id, cmd, s)
}

func (b backend) Ended(info SessionInfo, err error) {
	if b.ended != nil {
		b.ended(info, err)
	}
}

func (b backend) Attach(ctx context.Context, id string, s Streams) error { return b.attach(ctx, id, s) }

func (b backend) PortForward(ctx context.Context, pod string, port int32, stream io.ReadWriteCloser) error {
	return b.forward(ctx, pod, port, stream)
}

// running is a server under test.
type running struct {
	*Server
	t       *testing.T
	budgets *budget.Table
}

// setup is what a test can change of a server.
type setup struct {
	Config
	timing
	pending int
}

// discardLog returns a logger without output.
func discardLog() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// start runs a server until the test ends, and then checks for leaks.
func start(t *testing.T, b Backend, edit ...func(*setup)) running {
	t.Helper()
	return startLogging(t, b, discardLog(), edit...)
}

// budgetsFor returns the table that podd makes for the configuration.
func budgetsFor(cfg Config) *budget.Table {
	return budget.New(cfg.MaxSessions, cfg.MaxSessionsPerPod, MaxPending)
}

// limitsOf returns the limits that podd makes of the table.
func limitsOf(b *budget.Table) Limits {
	return Limits{
		Session: b.Sessions.Admit, Forward: b.Forwards.Admit,
		Pending: func() (func(), error) { return b.PendingConnections.Admit("") },
	}
}

// startLogging is start with a logger.
func startLogging(t *testing.T, b Backend, log logrus.FieldLogger, edit ...func(*setup)) running {
	t.Helper()
	leftovers := watchLeaks(t)
	c := setup{Config: DefaultConfig(), timing: quick, pending: MaxPending}
	for _, e := range edit {
		e(&c)
	}
	budgets := budget.New(c.MaxSessions, c.MaxSessionsPerPod, c.pending)
	s, err := newServer(c.Config, c.timing, limitsOf(budgets), b, log)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background()) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close = %v, want no error", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve = %v, want no error", err)
		}
		leftovers()
	})
	return running{s, t, budgets}
}

func (r running) execURL(cmd ...string) string {
	return r.url(r.Exec("", &cri.ExecRequest{ContainerId: "c1", Cmd: cmd, Stdin: true, Stdout: true, Stderr: true}))
}

func (r running) url(u string, err error) string {
	r.t.Helper()
	if err != nil {
		r.t.Error(err)
	}
	return u
}

// noSession waits until the server has no session.
func (r running) noSession() {
	r.t.Helper()
	eventually(r.t, "no session is left", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.budgets.Sessions.Usage().InUse == 0
	})
}

// watchLeaks counts goroutines and file descriptors. The function it returns waits until there are no more than before.
func watchLeaks(t *testing.T) func() {
	goroutines, fds := runtime.NumGoroutine(), countFDs(t)
	return func() {
		t.Helper()
		eventually(t, "leaked goroutines and descriptors are gone", func() bool {
			return runtime.NumGoroutine() <= goroutines && countFDs(t) <= fds
		})
		if t.Failed() {
			buf := make([]byte, 1<<20)
			t.Logf("goroutines %d -> %d, descriptors %d -> %d\n%s",
				goroutines, runtime.NumGoroutine(), fds, countFDs(t), buf[:runtime.Stack(buf, true)])
		}
	}
}

func countFDs(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			t.Errorf("not within %v: %s", patience, what)
			return
		}
		<-time.After(2 * time.Millisecond)
	}
}

// recv takes one value from ch.
func recv[T any](t *testing.T, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		t.Fatalf("no value within %v: %s", patience, what)
	}
	return v
}

// transport is a way for client-go to run a remote command.
type transport struct {
	name     string
	executor func(u string) (remotecommand.Executor, error)
}

func transports() []transport {
	cfg := &rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	ws := func(protocols ...string) func(string) (remotecommand.Executor, error) {
		return func(u string) (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutorForProtocols(cfg, "GET", u, protocols...)
		}
	}
	return []transport{
		{"spdy", func(u string) (remotecommand.Executor, error) {
			parsed, err := url.Parse(u)
			if err != nil {
				return nil, err
			}
			return remotecommand.NewSPDYExecutor(cfg, "POST", parsed)
		}},
		{"websocket-v5", ws("v5.channel.k8s.io")},
		{"websocket-v4", ws("v4.channel.k8s.io")},
	}
}

// eachTransport runs test as a subtest per transport, with a server of its own.
func eachTransport(t *testing.T, b Backend, test func(t *testing.T, r running, tr transport)) {
	for _, tr := range transports() {
		t.Run(tr.name, func(t *testing.T) { test(t, start(t, b), tr) })
	}
}

// result is what a client of a remote command saw.
type result struct {
	stdout, stderr string
	err            error
}

// stream runs the client against the URL until the end.
func (tr transport) stream(
	t *testing.T, u string, stdin io.Reader, tty bool, sizes remotecommand.TerminalSizeQueue,
) result {
	t.Helper()
	executor, err := tr.executor(u)
	if err != nil {
		return result{err: err}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if stdin == nil {
		stdin = strings.NewReader("")
	}
	var stdout, stderr bytes.Buffer
	opts := remotecommand.StreamOptions{Stdin: stdin, Stdout: &stdout, Tty: tty, TerminalSizeQueue: sizes}
	if !tty {
		opts.Stderr = &stderr
	}
	err = executor.StreamWithContext(ctx, opts)
	return result{stdout.String(), stderr.String(), err}
}

// dialUpgrade makes an HTTP/1.1 upgrade by hand, so that the test can break the connection.
func dialUpgrade(t *testing.T, u string, headers map[string]string) (net.Conn, *http.Response) {
	t.Helper()
	parsed, err := url.Parse(u)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", parsed.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\n", parsed.Path, parsed.Host)
	for k, v := range headers {
		fmt.Fprintf(conn, "%s: %s\r\n", k, v)
	}
	io.WriteString(conn, "\r\n")
	// Read single bytes: those after the response belong to the next protocol.
	resp, err := http.ReadResponse(bufio.NewReaderSize(oneByte{conn}, 16), nil)
	if err != nil {
		t.Fatal(err)
	}
	return conn, resp
}

type oneByte struct{ io.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.Reader.Read(p[:1]) }

// dialSPDY opens a SPDY connection to a URL.
func dialSPDY(t *testing.T, u, protocol string) (httpstream.Connection, net.Conn) {
	t.Helper()
	conn, resp := dialUpgrade(t, u, map[string]string{"Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": protocol})
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade: status %s, want 101", resp.Status)
	}
	client, err := spdy.NewClientConnection(conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client, conn
}

func openStream(t *testing.T, c httpstream.Connection, kv ...string) httpstream.Stream {
	t.Helper()
	h := http.Header{}
	for i := 0; i < len(kv); i += 2 {
		h.Set(kv[i], kv[i+1])
	}
	s, err := c.CreateStream(h)
	if err != nil {
		t.Fatalf("open stream %v: %v", kv, err)
	}
	return s
}

// dialWebSocket opens a WebSocket to a URL.
func dialWebSocket(t *testing.T, u string, protocols ...string) *websocket.Conn {
	t.Helper()
	ws, _, err := (&websocket.Dialer{Subprotocols: protocols}).Dial("ws"+u[len("http"):], nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.Close() })
	return ws
}

// held is a backend that keeps every session until its context ends, and sends the causes to ended.
func held() (b backend, started chan Streams, ended chan error) {
	started, ended = make(chan Streams, 16), make(chan error, 16)
	hold := func(ctx context.Context, s Streams) error {
		started <- s
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return context.Cause(ctx)
	}
	b.exec = func(ctx context.Context, _ string, _ []string, s Streams) (int, error) { return 0, hold(ctx, s) }
	b.attach = func(ctx context.Context, _ string, s Streams) error { return hold(ctx, s) }
	b.forward = func(ctx context.Context, _ string, _ int32, stream io.ReadWriteCloser) error {
		return hold(ctx, Streams{Stdin: stream, Stdout: stream})
	}
	return b, started, ended
}

// wantCause checks why a backend's context ended.
func wantCause(t *testing.T, ended <-chan error, want error) {
	t.Helper()
	if got := recv(t, "the backend's context to end", ended); !errors.Is(got, want) {
		t.Errorf("backend's context ended with %v, want %v", got, want)
	}
}

// safeBuffer is a bytes.Buffer for several goroutines.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
