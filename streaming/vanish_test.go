package streaming

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var noDeadline time.Time

// vanish closes or resets a connection, as the kernel does for a killed client.
func vanish(c net.Conn, how string) {
	if how == "reset" {
		c.(*net.TCPConn).SetLinger(0)
	}
	c.Close()
}

// TestVanish closes and resets the connection in every phase of a session. start's cleanup checks for leaks.
func TestVanish(t *testing.T) {
	phases := map[string]func(t *testing.T, r running, started <-chan Streams) net.Conn{
		"before the request": func(t *testing.T, r running, _ <-chan Streams) net.Conn {
			return dialRaw(t, r)
		},
		"in the middle of the request": func(t *testing.T, r running, _ <-chan Streams) net.Conn {
			c := dialRaw(t, r)
			io.WriteString(c, "GET /exec/")
			return c
		},
		"after the SPDY upgrade": func(t *testing.T, r running, _ <-chan Streams) net.Conn {
			_, c := dialSPDY(t, r.execURL(), "v4.channel.k8s.io")
			return c
		},
		"after one SPDY stream": func(t *testing.T, r running, _ <-chan Streams) net.Conn {
			spdy, c := dialSPDY(t, r.execURL(), "v4.channel.k8s.io")
			openStream(t, spdy, "streamType", "error")
			return c
		},
		"in a SPDY session": func(t *testing.T, r running, started <-chan Streams) net.Conn {
			spdy, c := dialSPDY(t, r.execURL(), "v4.channel.k8s.io")
			for _, kind := range []string{"error", "stdin", "stdout", "stderr"} {
				openStream(t, spdy, "streamType", kind)
			}
			recv(t, "the session", started)
			return c
		},
		"in a WebSocket session": func(t *testing.T, r running, started <-chan Streams) net.Conn {
			ws := dialWebSocket(t, r.execURL(), "v5.channel.k8s.io")
			recv(t, "the session", started)
			return ws.NetConn()
		},
		"in an attached WebSocket session": func(t *testing.T, r running, started <-chan Streams) net.Conn {
			req := &cri.AttachRequest{ContainerId: "c1", Stdout: true}
			ws := dialWebSocket(t, r.url(r.Attach("", req)), "v4.channel.k8s.io")
			recv(t, "the session", started)
			return ws.NetConn()
		},
		"before forwarding": func(t *testing.T, r running, _ <-chan Streams) net.Conn {
			_, c := dialSPDY(t, r.forwardURL(), "portforward.k8s.io")
			return c
		},
		"with half a forwarded connection": func(t *testing.T, r running, _ <-chan Streams) net.Conn {
			spdy, c := dialSPDY(t, r.forwardURL(), "portforward.k8s.io")
			openStream(t, spdy, "streamType", "data", "port", "80", "requestID", "1")
			return c
		},
		"while forwarding": func(t *testing.T, r running, started <-chan Streams) net.Conn {
			spdy, c := dialSPDY(t, r.forwardURL(), "portforward.k8s.io")
			openStream(t, spdy, "streamType", "error", "port", "80", "requestID", "1")
			openStream(t, spdy, "streamType", "data", "port", "80", "requestID", "1")
			recv(t, "the connection", started)
			return c
		},
		"while forwarding WebSocket channels": func(t *testing.T, r running, started <-chan Streams) net.Conn {
			req := &cri.PortForwardRequest{PodSandboxId: "p1", Port: []int32{80}}
			ws := dialWebSocket(t, r.url(r.PortForward("", req)), "v4.channel.k8s.io")
			recv(t, "the connection", started)
			return ws.NetConn()
		},
	}
	for name, reach := range phases {
		for _, how := range []string{"closed", "reset"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				b, started, ended := held()
				r := start(t, b)
				vanish(reach(t, r, started), how)
				r.noSession()
				for len(ended) > 0 {
					wantCause(t, ended, errGone)
				}
			})
		}
	}
}

func dialRaw(t *testing.T, r running) net.Conn {
	c, err := net.Dial("tcp", r.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestVanishCancels: the backend's context ends with a cause, and its input with an error other than EOF.
func TestVanishCancels(t *testing.T) {
	started, read := make(chan struct{}), make(chan error, 1)
	b := backend{exec: func(ctx context.Context, _ string, _ []string, s Streams) (int, error) {
		go func() {
			_, err := io.ReadFull(s.Stdin, make([]byte, len("half of it")))
			started <- struct{}{}
			if err == nil {
				_, err = s.Stdin.Read(make([]byte, 1))
			}
			read <- err
		}()
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}}
	for name, dial := range map[string]func(*testing.T, string) net.Conn{
		"spdy": func(t *testing.T, u string) net.Conn {
			spdy, c := dialSPDY(t, u, "v4.channel.k8s.io")
			for _, kind := range []string{"error", "stdout", "stderr"} {
				openStream(t, spdy, "streamType", kind)
			}
			io.WriteString(openStream(t, spdy, "streamType", "stdin"), "half of it")
			return c
		},
		"websocket": func(t *testing.T, u string) net.Conn {
			ws := dialWebSocket(t, u, "v5.channel.k8s.io")
			ws.WriteMessage(websocket.BinaryMessage, []byte("\x00half of it"))
			return ws.NetConn()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, b)
			c := dial(t, r.execURL())
			recv(t, "the first half", started)
			vanish(c, "closed")
			if err := recv(t, "the input to end", read); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("incomplete input ended with %v, want an error other than EOF", err)
			}
			r.noSession()
		})
	}
}

// TestVanishBehindUnreadInput: the client floods a command that does not read, and is killed. Its FIN is queued behind
// megabytes of unread data.
func TestVanishBehindUnreadInput(t *testing.T) {
	flood := make([]byte, 32<<10)
	for name, dial := range map[string]func(*testing.T, string) (net.Conn, func() error){
		"spdy": func(t *testing.T, u string) (net.Conn, func() error) {
			spdy, c := dialSPDY(t, u, "v4.channel.k8s.io")
			for _, kind := range []string{"error", "stdout", "stderr"} {
				openStream(t, spdy, "streamType", kind)
			}
			stdin := openStream(t, spdy, "streamType", "stdin")
			return c, func() error { _, err := stdin.Write(flood); return err }
		},
		"websocket": func(t *testing.T, u string) (net.Conn, func() error) {
			ws := dialWebSocket(t, u, "v5.channel.k8s.io")
			go func() { // as kubectl does, so that closing the connection sends no reset
				for {
					if _, _, err := ws.ReadMessage(); err != nil {
						return
					}
				}
			}()
			ws.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
			return ws.NetConn(), func() error { return ws.WriteMessage(websocket.BinaryMessage, flood) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, started, ended := held()
			r := start(t, b)
			c, write := dial(t, r.execURL())
			recv(t, "the session", started)
			c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
			var err error
			for err == nil {
				err = write()
			}
			if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
				t.Fatalf("write: %v, want a timeout on a full connection", err)
			}
			vanish(c, "closed")
			wantCause(t, ended, errGone)
			r.noSession()
		})
	}
}

// TestSlowReader: a client that pauses for less than the idle timeout gets the last byte and the outcome.
func TestSlowReader(t *testing.T) {
	const size = 8 << 20
	done := make(chan struct{}, 1)
	b := backend{exec: func(_ context.Context, _ string, _ []string, s Streams) (int, error) {
		_, err := s.Stdout.Write(make([]byte, size))
		done <- struct{}{}
		return 7, err
	}}
	r := start(t, b)
	ws := dialWebSocket(t, r.url(r.Exec("", &cri.ExecRequest{ContainerId: "c1", Stdout: true})), "v5.channel.k8s.io")
	select {
	case <-done:
		t.Fatal("all output fits into the connection's buffers, want it blocked")
	case <-time.After(3 * quick.linger):
	}
	got := collect(t, ws, false)
	if len(got[1]) != size || got[3] == "" {
		t.Errorf("got %d bytes, outcome %q; want %d bytes and an outcome", len(got[1]), got[3], size)
	}
}

// TestOutputBehindFlood: the command has ended, its last output is not acknowledged, and the client keeps sending and
// does not read yet. Closing the connection then would lose the output.
func TestOutputBehindFlood(t *testing.T) {
	const size = 512 << 10 // larger than the client's socket buffer, smaller than both buffers
	b := backend{exec: func(_ context.Context, _ string, _ []string, s Streams) (int, error) {
		if _, err := s.Stdin.Read(make([]byte, 1)); err != nil {
			return 0, err
		}
		_, err := s.Stdout.Write(make([]byte, size))
		return 7, err
	}}
	r := start(t, b)
	req := &cri.ExecRequest{ContainerId: "c1", Stdin: true, Stdout: true}
	ws := dialWebSocket(t, r.url(r.Exec("", req)), "v5.channel.k8s.io")
	go func() {
		for ws.WriteMessage(websocket.BinaryMessage, make([]byte, 1024)) == nil {
		}
	}()
	<-time.After(4 * quick.linger)
	got := collect(t, ws, false)
	if len(got[1]) != size || got[3] == "" {
		t.Errorf("got %d bytes, outcome %q; want %d bytes and an outcome", len(got[1]), got[3], size)
	}
}

// TestClientThatDoesNotDisconnect is disconnected once it has received everything.
func TestClientThatDoesNotDisconnect(t *testing.T) {
	b := backend{exec: func(context.Context, string, []string, Streams) (int, error) { return 0, nil }}
	r := start(t, b, func(c *setup) { c.create = time.Millisecond })
	_, resp := dialUpgrade(t, r.execURL(), upgradeSPDYHeaders)
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade: status %s, want 101", resp.Status)
	}
	// No stream is opened, so the session fails; the client neither reads nor disconnects.
	r.noSession()
}
