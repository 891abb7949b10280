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

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/podd-project/podd/test/daemon"
)

// Exec, attach and port-forward as kubectl does them, by the libraries it uses, into real containers.
func TestStreaming(t *testing.T) {
	t.Parallel()
	for handler, sessions := range map[string]int{"runc": 1000, "crun": 200} {
		t.Run(handler, func(t *testing.T) {
			// usage is measured from files that stay open: not meanwhile
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

// streamLimit is how long one session may take on a busy machine.
const streamLimit = time.Minute

// executor is client-go's, over SPDY or WebSocket.
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

// streamTo runs one session to its end.
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
			k.Errorf("%s: %v, %q, %q", name, err, stdout.String(), stderr.String())
		}
		var copied counter
		err = k.streamTo(i, k.execURL(id, false, "cat"),
			remotecommand.StreamOptions{Stdin: io.LimitReader(zeros{}, 4<<20), Stdout: &copied, Stderr: io.Discard})
		if err != nil || copied.Load() != 4<<20 {
			k.Errorf("%s: %d bytes came back, %v", name, copied.Load(), err)
		}
		if err = k.streamTo(i, k.execURL(id, false, "no-such-command"),
			remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard}); err == nil {
			k.Errorf("%s: a command that is not there: no error", name)
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

// sizes is a terminal that changes its size once it is asked the second time.
type sizes struct {
	asked int
	next  chan remotecommand.TerminalSize
}

func (s *sizes) Next() *remotecommand.TerminalSize {
	if s.asked++; s.asked == 1 {
		return &remotecommand.TerminalSize{Width: 100, Height: 30}
	}
	z, ok := <-s.next
	if !ok {
		return nil
	}
	return &z
}

// watched is a client's screen.
type watched struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *watched) shows(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.text.String(), text)
}

func streamTerminal(k *kubelet) {
	_, id := k.sleeper()
	for i := range 2 {
		in, user := io.Pipe()
		var screen watched
		terminal := &sizes{next: make(chan remotecommand.TerminalSize, 1)}
		done := make(chan error, 1)
		at := k.execURL(id, true, "sh")
		go func() {
			done <- k.streamTo(i, at, remotecommand.StreamOptions{Stdin: in, Stdout: &screen, Tty: true,
				TerminalSizeQueue: terminal})
		}()
		k.typeUntil(user, "stty size\n", &screen, "30 100")
		terminal.next <- remotecommand.TerminalSize{Width: 132, Height: 43}
		k.typeUntil(user, "stty size\n", &screen, "43 132")
		_, _ = io.WriteString(user, "exit 4\n")
		if err := <-done; exitCode(err) != 4 {
			k.Errorf("the shell ended with %v, want 4", err)
		}
		user.Close()
		close(terminal.next)
	}
}

// typeUntil types until the screen shows the text: the terminal may not be there at once, nor a new size.
func (k *kubelet) typeUntil(user io.Writer, line string, screen *watched, text string) {
	k.Helper()
	k.eventually("the terminal shows "+text, func() bool {
		_, _ = io.WriteString(user, line)
		return screen.shows(text)
	})
}

// streamVanish pulls the plug on sessions whose commands would run for hours: nothing of them may stay.
func streamVanish(k *kubelet) {
	_, id := k.sleeper()
	for i := range 4 {
		ctx, unplug := context.WithCancel(k.ctx())
		var screen watched
		in, user := io.Pipe()
		done := make(chan error, 1)
		tty := i >= 2
		e := k.executor(i, k.execURL(id, tty, "sh", "-c", "sleep 5432 & (sleep 5432 &) ; echo ready; sleep 5432"))
		o := remotecommand.StreamOptions{Stdin: in, Stdout: &screen, Tty: tty}
		if !tty {
			o.Stderr = io.Discard
		}
		go func() { done <- e.StreamWithContext(ctx, o) }()
		k.eventually("the command runs", func() bool { return screen.shows("ready") })
		unplug()
		<-done
		user.Close()
		k.eventually("the command has ended", func() bool {
			return k.exec(id, "grep -l '543[2]' /proc/[0-9]*/cmdline 2>/dev/null; true") == ""
		})
	}
}

// echoes is a container that answers on port 80, and what it is told on stdin on stdout.
func (k *kubelet) echoes() (pod, id string) {
	k.Helper()
	pod, cfg := k.pod()
	id, _ = k.runIn(pod, cfg, []string{"sh", "-c",
		"nc -ll -p 80 -e cat & while read -r x; do echo \"got $x\"; done; wait"},
		func(c *cri.ContainerConfig) { c.Stdin = true })
	k.eventually("the pod listens", func() bool { return k.exec(id, "grep -c ' 0A ' /proc/net/tcp; true") != "0" })
	return pod, id
}

// spdyDialer is a kubelet's way to a runtime; client-go's own needs an API server in between.
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

// forward forwards a local port to port 80 of the pod while use runs.
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
		return fmt.Errorf("forwarder ended: %w", err)
	}
	ports, err := f.GetPorts()
	if err == nil {
		err = use(fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	}
	close(stop)
	return errors.Join(err, <-done)
}

// echoed sends the text and wants it back.
func echoed(address, text string) error {
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
		return fmt.Errorf("%.40q came back as %.40q", text, back)
	}
	return nil
}

func streamForward(k *kubelet) {
	pod, _ := k.echoes()
	for i := range 2 {
		k.ok("forward", k.forward(i, pod, func(address string) error {
			var all sync.WaitGroup
			for n := range 8 { // at a time, one of them long, one that ends early
				all.Go(func() {
					text := strings.Repeat(fmt.Sprintf("connection %d ", n), 1+n*n*n*100)
					if err := echoed(address, text); err != nil {
						k.Errorf("connection %d: %v", n, err)
					}
				})
			}
			all.Wait()
			return echoed(address, "and one more")
		}))
	}
}

// streamMany runs many sessions, six at a time, of all kinds and over both transports, and then wants the daemon to
// hold no more than after the first few.
func streamMany(k *kubelet, sessions int) {
	pod, id := k.echoes()
	kinds := []func(i int) error{
		func(i int) error { return k.execCycle(i, id) },
		func(i int) error { return k.attachCycle(i, id) },
		func(i int) error {
			return k.forward(i, pod, func(address string) error { return echoed(address, fmt.Sprint("hello ", i)) })
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
	before := k.atRest()
	run(sessions)
	now := k.atRest()
	if now.files > before.files || now.goroutines > before.goroutines {
		k.Errorf("the daemon holds %d descriptors and %d goroutines, %d and %d before:\n%s", now.files, now.goroutines,
			before.files, before.goroutines, now.dump)
	}
	// A connection's child of nc ends some time after the connection.
	k.eventually("there are as many processes in the container as at the start",
		func() bool { return k.exec(id, "ps | wc -l") == processes })
}

func (k *kubelet) execCycle(i int, id string) error {
	var stdout strings.Builder
	err := k.streamTo(i, k.execURL(id, false, "sh", "-c", "cat; exit 7"),
		remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &stdout, Stderr: io.Discard})
	if exitCode(err) != 7 || stdout.String() != "hello" {
		return fmt.Errorf("exec: %w, %q", err, stdout.String())
	}
	return nil
}

// attachCycle says something to the container, hears the answer among those to others, and leaves.
func (k *kubelet) attachCycle(i int, id string) error {
	r, err := k.Runtime.Attach(k.ctx(), &cri.AttachRequest{ContainerId: id, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return err
	}
	ctx, leave := context.WithTimeout(k.ctx(), streamLimit)
	defer leave()
	in, user := io.Pipe()
	defer user.Close()
	heard := &listener{want: fmt.Sprintf("got me%d\n", i), heard: leave}
	go func() { _, _ = fmt.Fprintf(user, "me%d\n", i) }()
	err = k.executor(i, r.GetUrl()).StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: heard,
		Stderr: io.Discard})
	if !heard.done.Load() {
		return fmt.Errorf("attach: no answer: %w", err)
	}
	return nil
}

// listener calls heard when it has heard what it wants.
type listener struct {
	want  string
	heard func()
	done  atomic.Bool
	text  strings.Builder
}

func (l *listener) Write(p []byte) (int, error) {
	l.text.Write(p)
	if strings.Contains(l.text.String(), l.want) {
		l.done.Store(true)
		l.heard()
	}
	return len(p), nil
}

// holding is what the daemon has open.
type holding struct {
	files, goroutines int
	dump              string
}

// atRest is what the daemon holds once that has not changed for a while: sessions linger until their clients hang up.
func (k *kubelet) atRest() (h holding) {
	k.Helper()
	same := 0
	k.eventually("the daemon is at rest", func() bool {
		last := h
		if h = k.holds(); h.files == last.files && h.goroutines == last.goroutines {
			same++
		} else {
			same = 0
		}
		return same == 20
	})
	return h
}

// holds asks the daemon for its goroutines, by the signal that is for that.
func (k *kubelet) holds() (h holding) {
	k.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", k.Pid()))
	k.ok("descriptors", err)
	h.files = len(fds)
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
		h.dump = string(text)
		h.goroutines = strings.Count("\n"+h.dump, "\ngoroutine ")
		return h.goroutines > 0
	})
	return h
}
