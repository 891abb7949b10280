package streaming

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/moby/spdystream/spdy"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FuzzFrames: whatever a client sends after its upgrade, as SPDY or WebSocket frames, the server does not panic, and
// the session ends with the connection and leaves nothing behind.
func FuzzFrames(f *testing.F) {
	f.Add(false, true, spdyFrames(f))
	f.Add(true, true, spdyFrames(f))
	f.Add(false, true, []byte("\x80\x03\x00\x01\x00\xff\xff\xff")) // a stream with headers of 16 MiB
	f.Add(false, true, []byte("\x80\x03\x00\x04\x00\x00\x00\x04\xff\xff\xff\xff"))
	f.Add(false, false, []byte("\x82\x85\x00\x00\x00\x00\x00text\x88\x80\x00\x00\x00\x00"))
	f.Add(true, false, []byte("\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00")) // a message of 2^63-1 bytes
	f.Add(false, false, []byte("\x02\x81\x00\x00\x00\x00\x01\x80\x80\x00\x00\x00\x00\x89\x80\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, forward, useSPDY bool, frames []byte) {
		r := start(t, backend{
			exec: func(_ context.Context, _ string, _ []string, s Streams) (int, error) {
				_, err := io.Copy(io.Discard, s.Stdin)
				return 0, err
			},
			forward: func(_ context.Context, _ string, _ int32, stream io.ReadWriteCloser) error {
				_, err := io.Copy(stream, stream)
				return err
			},
		})
		conn := upgraded(t, r, forward, useSPDY)
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := conn.Write(frames); err == nil { // else the server has closed the connection
			_ = conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, io.LimitReader(conn, 1<<20))
		}
		conn.Close()
		r.noSession()
	})
}

// spdyFrames is a regular session: a stream of each kind, data, and its end.
func spdyFrames(f *testing.F) []byte {
	f.Helper()
	var out bytes.Buffer
	framer, err := spdy.NewFramer(&out, &out)
	if err != nil {
		f.Fatal(err)
	}
	frames := []spdy.Frame{}
	for i, kind := range []string{"error", "stdin", "stdout", "stderr", "data"} {
		frames = append(frames, &spdy.SynStreamFrame{StreamId: spdy.StreamId(2*i + 1), Headers: http.Header{
			"Streamtype": {kind}, "Port": {"80"}, "Requestid": {"0"},
		}})
	}
	frames = append(frames, &spdy.DataFrame{StreamId: 3, Data: []byte("input"), Flags: spdy.DataFlagFin},
		&spdy.PingFrame{Id: 1}, &spdy.RstStreamFrame{StreamId: 5, Status: spdy.Cancel}, &spdy.GoAwayFrame{})
	for _, frame := range frames {
		if err := framer.WriteFrame(frame); err != nil {
			f.Fatal(err)
		}
	}
	return out.Bytes()
}

// upgraded returns a connection after its upgrade.
func upgraded(t *testing.T, r running, forward, useSPDY bool) net.Conn {
	t.Helper()
	address, protocol := r.execURL("cat"), "v4.channel.k8s.io"
	if forward {
		address = r.url(r.PortForward("", &cri.PortForwardRequest{PodSandboxId: "p", Port: []int32{80}}))
		protocol = "portforward.k8s.io"
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	request := "POST %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n" +
		"X-Stream-Protocol-Version: %s\r\n\r\n"
	if !useSPDY {
		request = "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
			"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Protocol: %s\r\n\r\n"
		if forward {
			protocol = "v4.channel.k8s.io"
		}
	}
	fmt.Fprintf(conn, request, u.RequestURI(), protocol)
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade, port-forward %v, SPDY %v: status = %d, want 101", forward, useSPDY, resp.StatusCode)
	}
	return conn
}
