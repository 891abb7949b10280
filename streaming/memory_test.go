package streaming

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/moby/spdystream/spdy"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mostBuffered is what podd and the kernel may hold of input that a command does not read, in bytes: the kernel's
// buffers grow up to 10 MiB.
const mostBuffered = 16 << 20

// pour writes piece to c until that blocks for a second, at most limit bytes, and returns how many bytes it wrote.
func pour(c net.Conn, piece []byte, limit int) (sent int) {
	for sent < limit {
		c.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := c.Write(piece)
		if sent += n; err != nil {
			break
		}
	}
	return sent
}

// rawSPDY is a client that sends frames of its choice.
type rawSPDY struct {
	net.Conn
	*spdy.Framer
	t *testing.T
}

func dialRawSPDY(t *testing.T, u string, headers map[string]string) rawSPDY {
	t.Helper()
	all := map[string]string{"Upgrade": "SPDY/3.1"}
	maps.Copy(all, headers)
	conn, resp := dialUpgrade(t, u, all)
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade: status %s, want 101", resp.Status)
	}
	framer, err := spdy.NewFramer(conn, conn)
	if err != nil {
		t.Fatal(err)
	}
	return rawSPDY{conn, framer, t}
}

func execSPDY(t *testing.T, u string) rawSPDY {
	t.Helper()
	c := dialRawSPDY(t, u, map[string]string{"X-Stream-Protocol-Version": "v4.channel.k8s.io"})
	for i, kind := range []string{"error", "stdin", "stdout", "stderr"} {
		c.open(spdy.StreamId(2*i+1), http.Header{"streamtype": {kind}})
	}
	return c
}

func (c rawSPDY) open(id spdy.StreamId, h http.Header) {
	c.t.Helper()
	if err := c.WriteFrame(&spdy.SynStreamFrame{StreamId: id, Headers: h}); err != nil {
		c.t.Fatal(err)
	}
}

// dataFrame is the largest frame that SPDY has.
func dataFrame(stream uint32) []byte {
	frame := make([]byte, 8+spdy.MaxDataLength)
	binary.BigEndian.PutUint32(frame, stream)
	binary.BigEndian.PutUint32(frame[4:], spdy.MaxDataLength)
	return frame
}

// TestLargeFrames: podd reads no more than a part of large frames ahead, of streams that nobody reads.
func TestLargeFrames(t *testing.T) {
	b, started, _ := held()
	r := start(t, b)
	c := execSPDY(t, r.execURL())
	recv(t, "the session", started)
	for _, stream := range []uint32{3, 1, 5, 7} {
		if sent := pour(c, dataFrame(stream), 10*spdy.MaxDataLength); sent > mostBuffered {
			t.Errorf("stream %d: podd took %d MiB of unread input, want at most %d", stream, sent>>20, mostBuffered>>20)
		}
	}
}

// TestLargeMessages: likewise for the messages of a WebSocket.
func TestLargeMessages(t *testing.T) {
	for _, protocol := range []string{channelV5, channelV4Base64} {
		b, started, _ := held()
		r := start(t, b)
		dialer := websocket.Dialer{Subprotocols: []string{protocol}, NetDial: dialSmall}
		ws, _, err := dialer.Dial("ws"+r.execURL()[len("http"):], nil)
		if err != nil {
			t.Fatal(err)
		}
		defer ws.Close()
		recv(t, "the session", started)
		ws.SetWriteDeadline(time.Now().Add(time.Second))
		message := bytes.Repeat([]byte("AAAA"), maxMessageBytes/4-1)
		number := byte(0)
		if protocol == channelV4Base64 {
			number = '0'
		}
		err = ws.WriteMessage(websocket.BinaryMessage, append([]byte{number}, message...))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: podd took a message of %d bytes, %v, want to see it wait for the command", protocol, len(message), err)
		}
	}
}

// dialSmall makes a connection of which the client's kernel buffers little.
func dialSmall(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(16 << 10)
	}
	return c, err
}

// TestStreamsOfOneID: a client that opens one stream again and again, and reads nothing, costs no goroutine for each.
func TestStreamsOfOneID(t *testing.T) {
	started := make(chan struct{})
	r := start(t, backend{exec: func(ctx context.Context, _ string, _ []string, s Streams) (int, error) {
		close(started)
		_, err := io.Copy(s.Stdout, zeros{}) // until the client's buffers are full
		return 0, err
	}})
	c := execSPDY(t, r.execURL())
	recv(t, "the session", started)
	time.Sleep(time.Second)
	before := runtime.NumGoroutine()
	for range 2000 {
		if c.WriteFrame(&spdy.SynStreamFrame{StreamId: 1, Headers: http.Header{}}) != nil {
			break // refused
		}
	}
	time.Sleep(time.Second)
	if n := runtime.NumGoroutine() - before; n > 100 {
		t.Errorf("2000 frames started %d goroutines, want none", n)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestCompressedHeaders: small frames with large headers are refused.
func TestCompressedHeaders(t *testing.T) {
	r := start(t, backend{})
	c := dialRawSPDY(t, r.url(r.PortForward("", &cri.PortForwardRequest{PodSandboxId: "p1"})),
		map[string]string{"X-Stream-Protocol-Version": "portforward.k8s.io"})
	large := string(bytes.Repeat([]byte("a"), 512<<10))
	c.open(1, http.Header{"streamtype": {"data"}, "port": {"80"}, "requestid": {"0"}, "x": {large}})
	c.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.Conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) || err == nil {
		t.Errorf("read after headers of 512 KiB: %v, want a closed connection", err)
	}
}

// TestStreamsResetAtTheEnd: a client that opens and resets streams and then disconnects leaves nothing behind.
func TestStreamsResetAtTheEnd(t *testing.T) {
	b, _, _ := held()
	r := start(t, b)
	for range 10 {
		c := dialRawSPDY(t, r.url(r.PortForward("", &cri.PortForwardRequest{PodSandboxId: "p1"})),
			map[string]string{"X-Stream-Protocol-Version": "portforward.k8s.io"})
		var all bytes.Buffer
		framer, err := spdy.NewFramer(&all, nil)
		if err != nil {
			t.Fatal(err)
		}
		for id := spdy.StreamId(1); id < 200; id += 2 {
			h := http.Header{"streamtype": {"data"}, "port": {"80"}, "requestid": {time.Now().String()}}
			if err := errors.Join(framer.WriteFrame(&spdy.SynStreamFrame{StreamId: id, Headers: h}),
				framer.WriteFrame(&spdy.RstStreamFrame{StreamId: id, Status: spdy.Cancel})); err != nil {
				t.Fatal(err)
			}
		}
		c.Write(all.Bytes())
		c.Close()
	}
	r.noSession()
}

// TestMemoryOfSession: what BUDGETS.md says of a SPDY session, most of which is the compressor of headers.
func TestMemoryOfSession(t *testing.T) {
	const sessions, most = 16, 1 << 20
	var hello bytes.Buffer // what each client says
	framer, err := spdy.NewFramer(&hello, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, kind := range []string{"error", "stdin", "stdout", "stderr"} {
		frame := &spdy.SynStreamFrame{StreamId: spdy.StreamId(2*i + 1), Headers: http.Header{"streamtype": {kind}}}
		if err := framer.WriteFrame(frame); err != nil {
			t.Fatal(err)
		}
	}
	b, started, _ := held()
	r := start(t, b)
	before := heap()
	for range sessions {
		c, resp := dialUpgrade(t, r.execURL(), map[string]string{
			"Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v4.channel.k8s.io"})
		if resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("upgrade: status %s, want 101", resp.Status)
		}
		if _, err := c.Write(hello.Bytes()); err != nil {
			t.Fatal(err)
		}
		recv(t, "the session", started)
	}
	each := (heap() - before) / sessions
	t.Logf("a session takes %d KiB", each>>10)
	if each > most {
		t.Errorf("a session takes %d bytes, want at most %d", each, most)
	}
}

// heap returns the bytes in use, after a garbage collection.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
