package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// patience bounds every wait for a daemon. It is long because the machine is shared with other tests.
const patience = time.Minute

// site has the directories of a daemon under test, and the socket of its service manager.
type site struct {
	dir    string
	notify *net.UnixConn
}

func newSite(t *testing.T) *site {
	t.Helper()
	requireRoot(t)
	dir, err := os.MkdirTemp("", "podd-") // t.TempDir is too long for sockets and mounts
	if err != nil {
		t.Fatal(err)
	}
	s := &site{dir: dir, notify: notifySocket(t, filepath.Join(dir, "notify"))}
	t.Cleanup(func() { s.checkLeaks(t) })
	return s
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }
func (s *site) socket() string          { return s.path("run/podd.sock") }

// checkLeaks fails the test for mounts that a daemon left behind, and removes everything.
func (s *site) checkLeaks(t *testing.T) {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(s.dir))
	if err != nil {
		t.Error(err)
	}
	for _, m := range mounts {
		t.Errorf("left mounted: %s", m.Mountpoint)
		if err := syscall.Unmount(m.Mountpoint, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}
	if err := os.RemoveAll(s.dir); err != nil {
		t.Error(err)
	}
}

// command returns podd with the site's directories and the environment of a service manager.
func (s *site) command(args ...string) *exec.Cmd {
	all := append([]string{
		"--config", s.path("podd.toml"), "--root", s.path("root"), "--run", s.path("run"), "--log-format", "json",
		"--set", "network.conf_dir=" + s.path("net.d"),
	}, args...)
	cmd := exec.Command(os.Getenv("PODD_TEST_BINARY"), all...)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+s.path("notify"))
	return cmd
}

// fail runs a daemon that must exit by itself, and returns its exit status and output.
func (s *site) fail(t *testing.T, args ...string) (code int, output string) {
	t.Helper()
	out, err := s.command(args...).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("podd ended with %v, want an exit status\n%s", err, out)
	}
	return exit.ExitCode(), string(out)
}

// config writes the site's configuration file.
func (s *site) config(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(s.path("podd.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// running is a daemon that has sent READY=1.
type running struct {
	*exec.Cmd
	site   *site
	log    *transcript
	exited chan struct{} // closed; ProcessState is set then
}

// start runs a daemon until the end of the test and waits until it is ready.
func (s *site) start(t *testing.T, env []string, args ...string) *running {
	t.Helper()
	if _, err := os.Stat(s.path("podd.toml")); err != nil {
		s.config(t, "")
	}
	r := &running{Cmd: s.command(args...), site: s, log: &transcript{}, exited: make(chan struct{})}
	r.Env = append(r.Env, env...)
	r.Stderr = r.log
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		r.Wait() // sets ProcessState
		close(r.exited)
	}()
	t.Cleanup(func() {
		r.stop(t)
		if t.Failed() {
			t.Logf("log of the daemon:\n%s", r.log)
		}
	})
	r.expectNotify(t, "READY=1")
	return r
}

// stop stops the daemon with SIGTERM, if it still runs, and returns its exit status.
func (r *running) stop(t *testing.T) int {
	t.Helper()
	select {
	case <-r.exited:
	default:
		r.signal(t, syscall.SIGTERM)
		r.await(t)
	}
	return r.ProcessState.ExitCode()
}

func (r *running) await(t *testing.T) {
	t.Helper()
	select {
	case <-r.exited:
	case <-time.After(patience):
		r.Process.Signal(syscall.SIGABRT) // prints the goroutines
		<-r.exited
		t.Fatalf("the daemon did not exit within %v:\n%s", patience, r.log)
	}
}

func (r *running) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := r.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// expectNotify waits for a message to the service manager that has the line want.
func (r *running) expectNotify(t *testing.T, want string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	buf := make([]byte, 4096)
	for time.Now().Before(deadline) {
		if err := r.site.notify.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, err := r.site.notify.Read(buf)
		if err == nil && strings.Contains("\n"+string(buf[:n])+"\n", "\n"+want+"\n") {
			return
		}
		select {
		case <-r.exited:
			if err != nil { // no message is left
				t.Fatalf("the daemon exited before it sent %s:\n%s", want, r.log)
			}
		default:
		}
	}
	t.Fatalf("the daemon did not send %s within %v:\n%s", want, patience, r.log)
}

// dial connects to the daemon's socket.
func (r *running) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+r.site.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// transcript collects what a daemon logs.
type transcript struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	news chan struct{} // closed at the next line
}

func (tr *transcript) Write(p []byte) (int, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.news != nil {
		close(tr.news)
		tr.news = nil
	}
	return tr.buf.Write(p)
}

func (tr *transcript) String() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.buf.String()
}

// expect waits until text is logged.
func (tr *transcript) expect(t *testing.T, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("not logged"))
	defer cancel()
	for {
		tr.mu.Lock()
		if tr.news == nil {
			tr.news = make(chan struct{})
		}
		news, found := tr.news, bytes.Contains(tr.buf.Bytes(), []byte(text))
		tr.mu.Unlock()
		if found {
			return
		}
		select {
		case <-news:
		case <-ctx.Done():
			t.Fatalf("wait for %q: %v:\n%s", text, context.Cause(ctx), tr)
		}
	}
}

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: runs the daemon")
	}
}

// notifySocket returns the socket of a service manager.
func notifySocket(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
