package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/podd-project/podd/test/daemon"
)

// TestStreaming runs exec, attach and port-forward into real containers, by the libraries that kubectl uses.
func TestStreaming(t *testing.T) {
	t.Parallel()
	for handler, sessions := range map[string]int{"runc": 1000, "crun": 200} {
		t.Run(handler, func(t *testing.T) {
			// Usage is measured through files that stay open, which would change the number of descriptors.
			k := startWith(t, daemon.Options{Handler: handler, Set: []string{`runtime.stats_interval="1h"`}})
			for _, c := range []struct {
				name string
				test func(*kubelet)
			}{
				{"exec", streamExec},
				{"a terminal", streamTerminal},
				{"a client that vanishes", streamVanish},
				{"port-forward", streamForward},
				{"many sessions", func(k *kubelet) { streamMany(k, sessions) }},
			} {
				t.Run(c.name, func(t *testing.T) { c.test(k.sub(t)) })
			}
		})
	}
}

// streamLimit is the timeout of one session, long enough for a busy machine.
const streamLimit = time.Minute

// executor returns client-go's executor for the URL, over WebSocket if i is even, else over SPDY.
func (k *kubelet) executor(i int, at string) remotecommand.Executor {
	k.Helper()
	cfg := &rest.Config{}
	var e remotecommand.Executor
	var err error
	if i%2 == 0 {
		e, err = remotecommand.NewWebSocketExecutor(cfg, "GET", at)
	} else {
		var u *url.URL
		if u, err = url.Parse(at); err == nil {
			e, err = remotecommand.NewSPDYExecutor(cfg, "POST", u)
		}
	}
	if err != nil {
		k.Errorf("executor: %v", err)
	}
	return e
}

func (k *kubelet) execURL(id string, tty bool, cmd ...string) string {
	k.Helper()
	r, err := k.Runtime.Exec(k.ctx(), &cri.ExecRequest{ContainerId: id, Cmd: cmd, Stdin: true, Stdout: true, Stderr: !tty,
		Tty: tty})
	if err != nil {
		k.Errorf("Exec: %v", err)
	}
	return r.GetUrl()
}

// streamTo runs one session at the URL and returns when it has ended.
func (k *kubelet) streamTo(i int, at string, o remotecommand.StreamOptions) error {
	ctx, cancel := context.WithTimeout(k.ctx(), streamLimit)
	defer cancel()
	return k.executor(i, at).StreamWithContext(ctx, o)
}

func exitCode(err error) int {
	var exit exec.CodeExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.Code
	}
	return -1
}

func streamExec(k *kubelet) {
	_, id := k.sleeper()
	for i, name := range []string{"websocket", "spdy"} {
		var stdout, stderr strings.Builder
		err := k.streamTo(i, k.execURL(id, false, "sh", "-c", "cat; echo err >&2; exit 9"),
			remotecommand.StreamOptions{Stdin: strings.NewReader("all of it"), Stdout: &stdout, Stderr: &stderr})
		if exitCode(err) != 9 || stdout.String() != "all of it" || stderr.String() != "err\n" {
			k.Errorf("%s: exec: %v, stdout = %q, stderr = %q, want exit code 9, \"all of it\", \"err\\n\"", name, err,
				stdout.String(), stderr.String())
		}
		var copied counter
		err = k.streamTo(i, k.execURL(id, false, "cat"),
			remotecommand.StreamOptions{Stdin: io.LimitReader(zeros{}, 4<<20), Stdout: &copied, Stderr: io.Discard})
		if err != nil || copied.Load() != 4<<20 {
			k.Errorf("%s: exec cat: %d bytes, %v, want %d", name, copied.Load(), err, 4<<20)
		}
		if err = k.streamTo(i, k.execURL(id, false, "no-such-command"),
			remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard}); err == nil {
			k.Errorf("%s: a command that does not exist: error = nil, want one", name)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

type counter struct{ atomic.Int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.Add(int64(len(p)))
	return len(p), nil
}

// sizeQueue returns 100x30 first, then the sizes sent on next.
type sizeQueue struct {
	asked int
	next  chan remotecommand.TerminalSize
}

func (s *sizeQueue) Next() *remotecommand.TerminalSize {
	if s.asked++; s.asked == 1 {
		return &remotecommand.TerminalSize{Width: 100, Height: 30}
	}
	z, ok := <-s.next
	if !ok {
		return nil
	}
	return &z
}

// screen has what a session has written to the client so far.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) shows(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), text)
}

func streamTerminal(k *kubelet) {
	_, id := k.sleeper()
	for i := range 2 {
		in, user := io.Pipe()
		var out screen
		terminal := &sizeQueue{next: make(chan remotecommand.TerminalSize, 1)}
		done := make(chan error, 1)
		at := k.execURL(id, true, "sh")
		go func() {
			done <- k.streamTo(i, at, remotecommand.StreamOptions{Stdin: in, Stdout: &out, Tty: true,
				TerminalSizeQueue: terminal})
		}()
		k.typeUntil(user, "stty size\n", &out, "30 100")
		terminal.next <- remotecommand.TerminalSize{Width: 132, Height: 43}
		k.typeUntil(user, "stty size\n", &out, "43 132")
		_, _ = io.WriteString(user, "exit 4\n")
		if err := <-done; exitCode(err) != 4 {
			k.Errorf("end of the shell: %v, want exit code 4", err)
		}
		user.Close()
		close(terminal.next)
	}
	_, err := k.Runtime.Attach(k.ctx(), &cri.AttachRequest{ContainerId: id, Stdout: true, Tty: true})
	k.refused("attach with a terminal to a container without", err, "tty: is true, must be false", codes.InvalidArgument)
}

// typeUntil types the line until the output has the text, because the terminal and a new size take effect later.
func (k *kubelet) typeUntil(user io.Writer, line string, out *screen, text string) {
	k.Helper()
	k.eventually("the terminal shows "+text, func() bool {
		_, _ = io.WriteString(user, line)
		return out.shows(text)
	})
}

// streamVanish disconnects the client of sessions whose commands run for hours: their processes must be killed.
func streamVanish(k *kubelet) {
	_, id := k.sleeper()
	for i := range 4 {
		ctx, disconnect := context.WithCancel(k.ctx())
		var out screen
		in, user := io.Pipe()
		done := make(chan error, 1)
		tty := i >= 2
		e := k.executor(i, k.execURL(id, tty, "sh", "-c", "sleep 5432 & (sleep 5432 &) ; echo ready; sleep 5432"))
		o := remotecommand.StreamOptions{Stdin: in, Stdout: &out, Tty: tty}
		if !tty {
			o.Stderr = io.Discard
		}
		go func() { done <- e.StreamWithContext(ctx, o) }()
		k.eventually("the command runs", func() bool { return out.shows("ready") })
		disconnect()
		<-done
		user.Close()
		k.eventually("the command's processes are gone", func() bool {
			return k.exec(id, "grep -l '543[2]' /proc/[0-9]*/cmdline 2>/dev/null; true") == ""
		})
	}
}

// echoPod runs a container that echoes on port 80, and answers lines of its stdin on its stdout.
func (k *kubelet) echoPod() (pod, id string) {
	k.Helper()
	pod, cfg := k.pod()
	id, _ = k.runIn(pod, cfg, []string{"sh", "-c",
		"nc -ll -p 80 -e cat & while read -r x; do echo \"got $x\"; done; wait"},
		func(c *cri.ContainerConfig) { c.Stdin = true })
	k.eventually("the pod listens", func() bool { return k.exec(id, "grep -c ' 0A ' /proc/net/tcp; true") != "0" })
	return pod, id
}

// spdyDialer connects to the runtime as a kubelet does; client-go's dialer needs an API server.
type spdyDialer struct{ at string }

func (d spdyDialer) Dial(protocols ...string) (httpstream.Connection, string, error) {
	tripper, err := spdy.NewRoundTripper(nil)
	if err != nil {
		return nil, "", err
	}
	req, err := http.NewRequest(http.MethodPost, d.at, nil)
	if err != nil {
		return nil, "", err
	}
	for _, p := range protocols {
		req.Header.Add(httpstream.HeaderProtocolVersion, p)
	}
	resp, err := tripper.RoundTrip(req)
	if err != nil {
		return nil, "", err
	}
	conn, err := tripper.NewConnection(resp)
	return conn, resp.Header.Get(httpstream.HeaderProtocolVersion), err
}

// forward forwards a local port to port 80 of the pod while use runs, over WebSocket if i is even, else over SPDY.
func (k *kubelet) forward(i int, pod string, use func(address string) error) error {
	r, err := k.Runtime.PortForward(k.ctx(), &cri.PortForwardRequest{PodSandboxId: pod})
	if err != nil {
		return err
	}
	u, err := url.Parse(r.GetUrl())
	if err != nil {
		return err
	}
	var dialer httpstream.Dialer = spdyDialer{r.GetUrl()}
	if i%2 == 0 {
		if dialer, err = portforward.NewSPDYOverWebsocketDialerForStreaming(u, &rest.Config{Host: u.Host}); err != nil {
			return err
		}
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	f, err := portforward.NewForStreaming(dialer, []string{"0:80"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-done:
		return fmt.Errorf("ForwardPorts returned before it was ready: %w", err)
	}
	ports, err := f.GetPorts()
	if err == nil {
		err = use(fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	}
	close(stop)
	return errors.Join(err, <-done)
}

// checkEcho sends the text and returns an error unless the same text comes back.
func checkEcho(address, text string) error {
	conn, err := net.DialTimeout("tcp", address, streamLimit)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(streamLimit)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return err
	}
	back := make([]byte, len(text))
	if _, err := io.ReadFull(conn, back); err != nil {
		return err
	}
	if string(back) != text {
		return fmt.Errorf("echo = %.40q, want %.40q", back, text)
	}
	return nil
}

func streamForward(k *kubelet) {
	pod, _ := k.echoPod()
	for i := range 2 {
		k.ok("forward", k.forward(i, pod, func(address string) error {
			// Three at a time: busybox nc has a queue of that length, and on a busy machine resets one of thousands of
			// connections when there are eight, also without podd.
			var all errgroup.Group
			all.SetLimit(3)
			for n := range 8 { // with texts of different lengths
				all.Go(func() error {
					text := strings.Repeat(fmt.Sprintf("connection %d ", n), 1+n*n*n*100)
					if err := checkEcho(address, text); err != nil {
						return fmt.Errorf("connection %d: %w", n, err)
					}
					return nil
				})
			}
			return errors.Join(all.Wait(), checkEcho(address, "and one more"))
		}))
	}
}

// streamMany runs many sessions, six at a time, of all kinds and over both transports. Afterwards the daemon must have
// no more descriptors and goroutines than after the first 30.
func streamMany(k *kubelet, sessions int) {
	pod, id := k.echoPod()
	forwards := make(chan struct{}, 3) // as in streamForward
	kinds := []func(i int) error{
		func(i int) error { return k.execCycle(i, id) },
		func(i int) error { return k.attachCycle(i, id) },
		func(i int) error {
			forwards <- struct{}{}
			defer func() { <-forwards }()
			return k.forward(i, pod, func(address string) error { return checkEcho(address, fmt.Sprint("hello ", i)) })
		},
	}
	run := func(n int) {
		work := make(chan int)
		var workers sync.WaitGroup
		for range 6 {
			workers.Go(func() {
				for i := range work {
					if err := kinds[i%3](i / 3); err != nil {
						k.Errorf("session %d: %v", i, err)
					}
				}
			})
		}
		for i := range n {
			work <- i
		}
		close(work)
		workers.Wait()
	}
	processes := k.exec(id, "ps | wc -l")
	run(30)
	before := k.usageAtRest()
	run(sessions)
	var now daemonUsage
	for range 5 { // a session may take 10 s to end
		if now = k.usageAtRest(); now.files <= before.files && now.goroutines <= before.goroutines {
			break
		}
		time.Sleep(2 * time.Second)
	}
	if now.files > before.files || now.goroutines > before.goroutines {
		k.Errorf("daemon has %d descriptors and %d goroutines, want at most %d and %d, as before:\n%s", now.files,
			now.goroutines, before.files, before.goroutines, now.dump)
	}
	// nc's child for a connection exits some time after the connection is closed.
	k.eventually("there are as many processes in the container as at the start",
		func() bool { return k.exec(id, "ps | wc -l") == processes })
}

func (k *kubelet) execCycle(i int, id string) error {
	var stdout strings.Builder
	err := k.streamTo(i, k.execURL(id, false, "sh", "-c", "cat; exit 7"),
		remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &stdout, Stderr: io.Discard})
	if exitCode(err) != 7 || stdout.String() != "hello" {
		return fmt.Errorf("exec: %w, stdout = %q, want exit code 7, \"hello\"", err, stdout.String())
	}
	return nil
}

// attachCycle attaches, writes a line, reads until its answer arrives, and disconnects. The output also has the answers
// to other sessions.
func (k *kubelet) attachCycle(i int, id string) error {
	r, err := k.Runtime.Attach(k.ctx(), &cri.AttachRequest{ContainerId: id, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return err
	}
	ctx, leave := context.WithTimeout(k.ctx(), streamLimit)
	defer leave()
	in, user := io.Pipe()
	defer user.Close()
	answer := &matchWriter{want: fmt.Sprintf("got me%d\n", i), found: leave}
	go func() { _, _ = fmt.Fprintf(user, "me%d\n", i) }()
	err = k.executor(i, r.GetUrl()).StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: answer,
		Stderr: io.Discard})
	if !answer.done.Load() {
		return fmt.Errorf("attach: no answer %q: %w", answer.want, err)
	}
	return nil
}

// matchWriter calls found when want has been written to it.
type matchWriter struct {
	want  string
	found func()
	done  atomic.Bool
	text  strings.Builder
}

func (m *matchWriter) Write(p []byte) (int, error) {
	m.text.Write(p)
	if strings.Contains(m.text.String(), m.want) {
		m.done.Store(true)
		m.found()
	}
	return len(p), nil
}

// daemonUsage is the number of descriptors and goroutines of the daemon, with a dump of the goroutines.
type daemonUsage struct {
	files, goroutines int
	dump              string
}

// usageAtRest returns the daemon's usage when it has not changed in 20 readings: a session ends only when its client
// closes the connection.
func (k *kubelet) usageAtRest() (u daemonUsage) {
	k.Helper()
	same := 0
	k.eventually("the daemon is at rest", func() bool {
		last := u
		if u = k.usage(); u.files == last.files && u.goroutines == last.goroutines {
			same++
		} else {
			same = 0
		}
		return same == 20
	})
	return u
}

// usage counts the daemon's descriptors, and makes it dump its goroutines by SIGUSR1.
func (k *kubelet) usage() (u daemonUsage) {
	k.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", k.Pid()))
	k.ok("descriptors", err)
	u.files = len(fds)
	dumps := k.Path("run", "goroutines-*.txt")
	old, err := filepath.Glob(dumps)
	k.ok("goroutine dumps", err)
	k.ok("signal", syscall.Kill(k.Pid(), syscall.SIGUSR1))
	k.eventually("a dump of goroutines", func() bool {
		now, err := filepath.Glob(dumps)
		k.ok("goroutine dumps", err)
		if len(now) <= len(old) {
			return false
		}
		text, err := os.ReadFile(now[len(now)-1]) // named by time
		k.ok("goroutine dump", err)
		u.dump = string(text)
		u.goroutines = strings.Count("\n"+u.dump, "\ngoroutine ")
		return u.goroutines > 0
	})
	return u
}
