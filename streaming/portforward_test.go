package streaming

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

func (r running) forwardURL() string {
	return r.url(r.PortForward("", &cri.PortForwardRequest{PodSandboxId: "p1"}))
}

// pod is a backend of forwarded connections: port 80 echoes, 81 resets, 82 fails, 83 panics, 84 sends nothing, 85
// closes at once.
func pod() backend {
	return backend{forward: func(ctx context.Context, pod string, port int32, stream io.ReadWriteCloser) error {
		switch port {
		case 80:
			fmt.Fprintf(stream, "%s:%d:", pod, port)
			_, err := io.Copy(stream, stream)
			return err
		case 81:
			return fmt.Errorf("copy from pod: %w", &net.OpError{Op: "write", Err: syscall.EPIPE})
		case 82:
			return errors.New("connection refused")
		case 84:
			<-ctx.Done()
			return context.Cause(ctx)
		case 85:
			return nil
		}
		panic("port " + fmt.Sprint(port))
	}}
}

func forwardedPorts() []string { return []string{"0:80", "0:81", "0:82"} }

// forwarders are client-go's two ways to forward ports.
var forwarders = map[string]func(u *url.URL) (*portforward.PortForwarder, chan struct{}, chan struct{}, error){
	"spdy": func(u *url.URL) (*portforward.PortForwarder, chan struct{}, chan struct{}, error) {
		roundTripper, err := spdy.NewRoundTripper(nil)
		if err != nil {
			return nil, nil, nil, err
		}
		dialer := spdyDialer{roundTripper, u}
		stop, ready := make(chan struct{}), make(chan struct{})
		f, err := portforward.NewForStreaming(dialer, forwardedPorts(), stop, ready, io.Discard, io.Discard)
		return f, stop, ready, err
	},
	"websocket": func(u *url.URL) (*portforward.PortForwarder, chan struct{}, chan struct{}, error) {
		dialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(u, &rest.Config{Host: u.Host})
		if err != nil {
			return nil, nil, nil, err
		}
		stop, ready := make(chan struct{}), make(chan struct{})
		f, err := portforward.NewForStreaming(dialer, forwardedPorts(), stop, ready, io.Discard, io.Discard)
		return f, stop, ready, err
	},
}

type spdyDialer struct {
	roundTripper *spdy.SpdyRoundTripper
	url          *url.URL
}

func (d spdyDialer) Dial(protocols ...string) (httpstream.Connection, string, error) {
	req, err := http.NewRequest("POST", d.url.String(), nil)
	if err != nil {
		return nil, "", err
	}
	for _, p := range protocols {
		req.Header.Add(httpstream.HeaderProtocolVersion, p)
	}
	resp, err := d.roundTripper.RoundTrip(req)
	if err != nil {
		return nil, "", err
	}
	conn, err := d.roundTripper.NewConnection(resp)
	return conn, resp.Header.Get(httpstream.HeaderProtocolVersion), err
}

// TestPortForward uses client-go: many connections at a time, some of them reset, and one that fails at the end.
func TestPortForward(t *testing.T) {
	for name, dial := range forwarders {
		t.Run(name, func(t *testing.T) {
			r := start(t, pod())
			u, _ := url.Parse(r.forwardURL())
			f, stop, ready, err := dial(u)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- f.ForwardPorts() }()
			recv(t, "the forwarder", ready)
			ports, err := f.GetPorts()
			if err != nil {
				t.Fatal(err)
			}
			local := map[uint16]string{}
			for _, p := range ports {
				local[p.Remote] = fmt.Sprintf("127.0.0.1:%d", p.Local)
			}
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() { echo(t, local[80], fmt.Sprintf("connection %d", i)) })
				all.Go(func() { silent(t, local[81]) })
			}
			all.Wait()
			echo(t, local[80], strings.Repeat("long ", 100_000))
			silent(t, local[82]) // client-go then ends the session
			close(stop)
			recv(t, "the forwarder to end", ended)
			r.noSession()
		})
	}
}

// echo sends text through a forwarded connection, closes its side, and checks the echo.
func echo(t *testing.T, addr, text string) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	go func() {
		io.WriteString(c, text)
		c.(*net.TCPConn).CloseWrite()
	}()
	c.SetReadDeadline(time.Now().Add(patience))
	got, err := io.ReadAll(c)
	if want := "p1:80:" + text; err != nil || string(got) != want {
		t.Errorf("got %.30q of %d bytes, %v; want %.30q of %d bytes", got, len(got), err, want, len(want))
	}
}

// silent checks that a forwarded connection ends without a byte.
func silent(t *testing.T, addr string) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(patience))
	got, err := io.ReadAll(c)
	if timeout, ok := errors.AsType[net.Error](err); len(got) > 0 || ok && timeout.Timeout() {
		t.Errorf("got %q, %v; want no byte and a closed connection", got, err)
	}
}

// pair opens a forwarded connection by hand.
func pair(t *testing.T, c httpstream.Connection, port, id string) (data, status httpstream.Stream) {
	status = openStream(t, c, "streamType", "error", "port", port, "requestID", id)
	data = openStream(t, c, "streamType", "data", "port", port, "requestID", id)
	return data, status
}

// TestForwardFailures: a failure is reported on the connection's own error stream, a reset is not; the session goes on.
func TestForwardFailures(t *testing.T) {
	r := start(t, pod())
	c, _ := dialSPDY(t, r.forwardURL(), "portforward.k8s.io")
	for i, want := range []struct{ port, status string }{
		{"81", ""},
		{"82", "error forwarding port 82: connection refused"},
		{"83", "error forwarding port 83: podd panicked, see its log"},
		{"80", ""},
	} {
		data, status := pair(t, c, want.port, fmt.Sprint(i))
		data.Close()
		if got, err := io.ReadAll(status); err != nil || string(got) != want.status {
			t.Errorf("port %s: error stream = %q, %v, want %q", want.port, got, err, want.status)
		}
		if got, _ := io.ReadAll(data); want.port == "80" != (string(got) == "p1:80:") {
			t.Errorf("port %s: data = %q, want %q from port 80 only", want.port, got, "p1:80:")
		}
	}
}

// TestForwardUnreadInput: input for a connection that has ended is dropped and does not block the others.
func TestForwardUnreadInput(t *testing.T) {
	r := start(t, pod())
	c, _ := dialSPDY(t, r.forwardURL(), "portforward.k8s.io")
	flood := make(chan error, 5)
	for i := range 5 { // one for each worker of a SPDY connection
		data, status := pair(t, c, "85", fmt.Sprint(i))
		io.ReadAll(status)
		go func() {
			var err error
			for range 200 {
				if _, e := data.Write(make([]byte, 32<<10)); e != nil {
					err = e
				}
			}
			flood <- err
		}()
	}
	for range 5 {
		recv(t, "the flood to be taken", flood)
	}
	data, _ := pair(t, c, "80", "last")
	data.Close()
	if got, err := io.ReadAll(data); string(got) != "p1:80:" {
		t.Errorf("next connection: %q, %v, want %q", got, err, "p1:80:")
	}
}

// TestForwardRefusedStreams: invalid streams are reset, the session goes on.
func TestForwardRefusedStreams(t *testing.T) {
	r := start(t, pod())
	c, _ := dialSPDY(t, r.forwardURL(), "portforward.k8s.io")
	pair(t, c, "84", "open")
	openStream(t, c, "streamType", "error", "port", "80", "requestID", "half")
	for name, headers := range map[string][]string{
		"no port":          {"streamType", "data", "requestID", "1"},
		"port 0":           {"streamType", "data", "requestID", "1", "port", "0"},
		"port 65536":       {"streamType", "data", "requestID", "1", "port", "65536"},
		"negative port":    {"streamType", "data", "requestID", "1", "port", "-1"},
		"no stream type":   {"port", "80", "requestID", "1"},
		"bad stream type":  {"streamType", "stdin", "port", "80", "requestID", "1"},
		"no request id":    {"streamType", "data", "port", "80"},
		"long request id":  {"streamType", "data", "port", "80", "requestID", strings.Repeat("1", 65)},
		"second half":      {"streamType", "error", "port", "80", "requestID", "half"},
		"other port":       {"streamType", "data", "port", "81", "requestID", "half"},
		"huge port header": {"streamType", "data", "port", strings.Repeat("1", maxHeaderField), "requestID", "1"},
	} {
		h := http.Header{}
		for i := 0; i < len(headers); i += 2 {
			h.Set(headers[i], headers[i+1])
		}
		if _, err := c.CreateStream(h); err == nil {
			t.Errorf("%s: stream was accepted, want a reset", name)
		}
	}
	data, _ := pair(t, c, "80", "last")
	data.Close()
	if got, err := io.ReadAll(data); string(got) != "p1:80:" {
		t.Errorf("after the refused streams: %q, %v, want %q", got, err, "p1:80:")
	}
}

// TestForwardLimit: the connections of a pod are bounded; one that ends frees its place.
func TestForwardLimit(t *testing.T) {
	const perPod = 512
	// On a busy machine, opening that many takes longer than the default, after which the first ones are closed.
	r := start(t, pod(), func(c *setup) { c.create = time.Hour })
	c, _ := dialSPDY(t, r.forwardURL(), "portforward.k8s.io")
	half := func(kind string, i int) (httpstream.Stream, error) {
		return c.CreateStream(http.Header{"Streamtype": {kind}, "Port": {"82"}, "Requestid": {fmt.Sprint(i)}})
	}
	var first httpstream.Stream
	for i := range perPod {
		status, err := half("error", i)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		if i == 0 {
			first = status
		}
	}
	if _, err := half("error", perPod); err == nil {
		t.Errorf("connection %d was accepted, want at most %d", perPod+1, perPod)
	}
	if _, err := half("data", 0); err != nil { // completes a connection, which then fails and ends
		t.Error(err)
	}
	// Unread, its error would block a worker of the client, and with it the replies to one in five new streams.
	if got, err := io.ReadAll(first); len(got) == 0 || err != nil {
		t.Errorf("error of the first connection: %q, %v, want one", got, err)
	}
	eventually(t, "another connection is accepted", func() bool {
		_, err := half("error", perPod+1)
		return err == nil
	})
	c.Close()
	eventually(t, "nothing is in use", func() bool { return r.budgets.Forwards.Usage().InUse == 0 })
}

// TestForwardExpiry: a connection whose second stream is not opened in time is reset, and its request id is free again.
func TestForwardExpiry(t *testing.T) {
	r := start(t, pod(), func(c *setup) { c.create = time.Second })
	c, _ := dialSPDY(t, r.forwardURL(), "portforward.k8s.io")
	for range 3 { // with the same request id
		status := openStream(t, c, "streamType", "error", "port", "80", "requestID", "1")
		if got, err := io.ReadAll(status); len(got) > 0 || err != nil {
			t.Errorf("error stream of an incomplete connection = %q, %v, want empty", got, err)
		}
	}
	data, _ := pair(t, c, "80", "1")
	data.Close()
	if got, err := io.ReadAll(data); string(got) != "p1:80:" {
		t.Errorf("complete connection: %q, %v, want %q", got, err, "p1:80:")
	}
}

// TestForwardClientReset: when the client resets a connection, the backend's call ends even if it neither reads nor
// writes, and the session goes on.
func TestForwardClientReset(t *testing.T) {
	b, started, ended := held()
	r := start(t, b)
	c, _ := dialSPDY(t, r.forwardURL(), "portforward.k8s.io")
	data, _ := pair(t, c, "80", "1")
	recv(t, "the connection", started)
	data.Reset()
	wantCause(t, ended, syscall.ECONNRESET)
	pair(t, c, "80", "2")
	recv(t, "the next connection", started)
	c.Close()
	wantCause(t, ended, errGone)
	r.noSession()
}

// TestForwardChannels uses the channel protocol: two channels per port, each beginning with the port number.
func TestForwardChannels(t *testing.T) {
	for _, protocol := range []string{"v4.channel.k8s.io", "v4.base64.channel.k8s.io"} {
		t.Run(protocol, func(t *testing.T) {
			b := pod()
			echo := b.forward
			b.forward = func(ctx context.Context, pod string, port int32, stream io.ReadWriteCloser) error {
				if port != 80 {
					return echo(ctx, pod, port, stream)
				}
				word := make([]byte, 4)
				_, err := io.ReadFull(stream, word)
				stream.Write(bytes.ToUpper(word))
				return err
			}
			r := start(t, b)
			req := &cri.PortForwardRequest{PodSandboxId: "p1", Port: []int32{82, 80, 81}}
			ws := dialWebSocket(t, r.url(r.PortForward("", req)), protocol)
			text := strings.Contains(protocol, "base64")
			kind, word := websocket.BinaryMessage, []byte("\x02word")
			if text {
				kind, word = websocket.TextMessage, []byte("2d29yZA==")
			}
			if err := ws.WriteMessage(kind, word); err != nil {
				t.Fatal(err)
			}
			got := collect(t, ws, text)
			number := func(port uint16) string { return string(binary.LittleEndian.AppendUint16(nil, port)) }
			for channel, want := range map[byte]string{
				0: number(82), 1: number(82) + "error forwarding port 82: connection refused",
				2: number(80) + "WORD", 3: number(80),
				4: number(81), 5: number(81),
			} {
				if got[channel] != want {
					t.Errorf("channel %d = %q, want %q", channel, got[channel], want)
				}
			}
		})
	}
}

// halfCloser is a pod that says bye and closes its side. uploaded gets its further input, and the cause of ctx' end.
func halfCloser() (b backend, uploaded chan string) {
	uploaded = make(chan string, 2)
	return backend{forward: func(ctx context.Context, _ string, _ int32, stream io.ReadWriteCloser) error {
		defer context.AfterFunc(ctx, func() { uploaded <- context.Cause(ctx).Error() })()
		io.WriteString(stream, "bye")
		stream.Close()
		got, err := io.ReadAll(stream)
		uploaded <- string(got)
		return err
	}}, uploaded
}

// TestForwardPodHalfCloses: the pod gets what a client sends after the pod has closed its side.
func TestForwardPodHalfCloses(t *testing.T) {
	b, uploaded := halfCloser()
	r := start(t, b, func(c *setup) { c.check = 2 * time.Second })
	c, _ := dialSPDY(t, r.forwardURL(), "portforward.k8s.io")
	data, _ := pair(t, c, "80", "1")
	const pieces = 8
	for range pieces { // longer than two checks, all together
		if _, err := io.WriteString(data, "x"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(600 * time.Millisecond)
	}
	data.Close()
	if got, want := recv(t, "the upload", uploaded), strings.Repeat("x", pieces); got != want {
		t.Errorf("the pod got %q, want %q", got, want)
	}
	if got, err := io.ReadAll(data); err != nil || string(got) != "bye" {
		t.Errorf("the client got %q, %v, want %q", got, err, "bye")
	}
}

// TestForwardChannelsPodCloses: the session of a client ends after the pod has closed the connection, although the
// protocol has no message by which the client could close its side. What the client still sends reaches the pod.
func TestForwardChannelsPodCloses(t *testing.T) {
	for _, pieces := range []int{0, 6} {
		b, uploaded := halfCloser()
		r := start(t, b, func(c *setup) { c.halfClosed = 2 * time.Second })
		req := &cri.PortForwardRequest{PodSandboxId: "p1", Port: []int32{80}}
		ws := dialWebSocket(t, r.url(r.PortForward("", req)), "v4.channel.k8s.io")
		for range pieces { // longer than halfClosed, all together
			if err := ws.WriteMessage(websocket.BinaryMessage, []byte("\x00x")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(400 * time.Millisecond)
		}
		ws.SetReadDeadline(time.Now().Add(20 * time.Second))
		if got, want := collect(t, ws, false), "P\x00bye"; got[0] != want {
			t.Errorf("data = %q, want %q", got[0], want)
		}
		if got, want := recv(t, "the upload", uploaded), strings.Repeat("x", pieces); got != want {
			t.Errorf("the pod got %q, want %q", got, want)
		}
	}
}
