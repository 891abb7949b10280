package sandbox

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/sandbox/record"
)

// echoServer answers every line until its input ends, then says bye.
func echoServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				lines := bufio.NewScanner(conn)
				for lines.Scan() {
					io.WriteString(conn, "echo "+lines.Text()+"\n")
				}
				io.WriteString(conn, "bye\n")
			}()
		}
	}()
	return l.Addr().String()
}

func TestPortForward(t *testing.T) {
	m := newMachine(t)
	m.network.Listener = echoServer(t)
	e, _ := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	client, server := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- e.PortForward(t.Context(), pod, 80, server) }()
	io.WriteString(client, "hi\n")
	answer := bufio.NewReader(client)
	if line, err := answer.ReadString('\n'); err != nil || line != "echo hi\n" {
		t.Fatalf("read %q, %v, want %q", line, err, "echo hi\n")
	}
	client.Close()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// TestPortForwardToOwnKernel: the server listens at the second address of the pod only.
func TestPortForwardToOwnKernel(t *testing.T) {
	at := netip.MustParseAddrPort(echoServer(t))
	p := &Pod{}
	p.status.Store(&record.PodStatus{IPs: []string{"127.0.0.2", "127.0.0.1"}})
	conn, err := dialPod(t.Context(), p, at.Port())
	must(t, err)
	must(t, conn.Close())
	p.status.Store(&record.PodStatus{IPs: []string{"127.0.0.2", "127.0.0.3"}})
	if _, err := dialPod(t.Context(), p, at.Port()); err == nil || !strings.Contains(err.Error(), "127.0.0.3") {
		t.Errorf("dialPod without a server = %v, want an error with the addresses", err)
	}
}

// TestPortForwardToNode: both addresses of localhost are tried, without the name, which a node may not know.
func TestPortForwardToNode(t *testing.T) {
	e := &Engine{}
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		must(t, err)
		port := netip.MustParseAddrPort(l.Addr().String()).Port()
		conn, err := e.dial(t.Context(), &Pod{}, port)
		must(t, err)
		must(t, errors.Join(conn.Close(), l.Close()))
		_, err = e.dial(t.Context(), &Pod{}, port)
		if err == nil || !strings.Contains(err.Error(), "127.0.0.1:") || !strings.Contains(err.Error(), "[::1]:") {
			t.Errorf("dial without a server = %v, want an error with both addresses", err)
		}
	}
}

func TestPortForwardEndsWithItsContext(t *testing.T) {
	m := newMachine(t)
	m.network.Listener = echoServer(t)
	e, _ := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	client, server := net.Pipe()
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.PortForward(ctx, pod, 80, server) }()
	cancel()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("still forwarding")
	}
}

func TestPortForwardRefuses(t *testing.T) {
	m := newMachine(t)
	e, _ := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	_, stream := net.Pipe()
	if err := e.PortForward(t.Context(), "nope", 80, stream); !errdefs.IsNotFound(err) {
		t.Errorf("absent pod: %v", err)
	}
	if err := e.PortForward(t.Context(), pod, 70000, stream); !errdefs.IsInvalidArgument(err) {
		t.Errorf("bad port: %v", err)
	}
	must(t, e.StopPod(t.Context(), pod))
	if err := e.PortForward(t.Context(), pod, 80, stream); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("stopped pod: %v", err)
	}
}
