package streaming

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	wire "k8s.io/cri-streaming/pkg/streaming/portforward"
)

// forwardTunnel serves SPDY tunnelled through WebSocket messages, as kubectl does since Kubernetes 1.30 (KEP-4006).
func (s *Server) forwardTunnel(sess *session, w http.ResponseWriter, r *http.Request, pod string) error {
	ws, err := upgradeWebSocket(w, r, wire.WebsocketsSPDYTunnelingPortForwardV1)
	if err != nil {
		return err
	}
	answerPings(sess, ws)
	f := newForwards(s, sess, pod)
	conn, err := startSPDY(sess, &tunnel{conn: sess.conn, ws: ws}, f.accept)
	if err != nil {
		return err
	}
	return f.serve(conn)
}

// tunnel is a byte stream over WebSocket messages; message boundaries carry no meaning.
type tunnel struct {
	*conn
	ws      *websocket.Conn
	message io.Reader
}

func (t *tunnel) Read(p []byte) (int, error) {
	for {
		if t.message == nil {
			_, message, err := t.ws.NextReader()
			if err != nil {
				return 0, io.EOF
			}
			t.message = message
		}
		n, err := t.message.Read(p)
		if err == io.EOF {
			t.message, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func (t *tunnel) Write(p []byte) (int, error) {
	if err := t.ws.WriteMessage(websocket.BinaryMessage, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close sends a WebSocket close message and ends the outgoing direction.
func (t *tunnel) Close() error {
	closing := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = t.ws.WriteControl(websocket.CloseMessage, closing, time.Now().Add(time.Second))
	return t.conn.Close()
}

// forwardChannels serves the ports of the request over WebSocket channels: two for each port, data and error. The
// first two bytes of each channel are the port number, little endian.
func (s *Server) forwardChannels(
	sess *session, w http.ResponseWriter, r *http.Request, req *cri.PortForwardRequest,
) error {
	ws, err := upgradeWebSocket(w, r, channelV4, channelV4Base64)
	if err != nil {
		return err
	}
	c := newChannels(sess, ws)
	ports := make([]*channelForward, len(req.GetPort()))
	for i, port := range req.GetPort() {
		data, status := byte(2*i), byte(2*i+1)
		ports[i] = &channelForward{
			port: port, Reader: c.input(data), channelWriter: c.output(data), status: c.output(status),
		}
	}
	c.start()
	for _, p := range ports {
		number := binary.LittleEndian.AppendUint16(nil, uint16(p.port))
		_, _ = p.Write(number)
		_, _ = p.status.Write(number)
	}
	done := make(chan struct{})
	for _, p := range ports {
		go func() {
			defer func() { done <- struct{}{} }()
			err := s.forwardChannel(sess, req.GetPodSandboxId(), p)
			if err != nil && !isPeerClosed(err) && sess.ctx.Err() == nil {
				fmt.Fprintf(p.status, "error forwarding port %d: %s", p.port, truncate(err.Error()))
			}
			p.stop()
		}()
	}
	for range ports {
		<-done
	}
	early := sess.err()
	sess.finish(c.close)
	return early
}

// forwardChannel connects one port to the pod.
func (s *Server) forwardChannel(sess *session, pod string, p *channelForward) error {
	release, err := s.limits.Forward(pod)
	if err != nil {
		return err
	}
	defer release()
	return s.forwardConn(sess.ctx, pod, p.port, p)
}

// channelForward is one port as passed to the backend.
type channelForward struct {
	io.Reader
	*channelWriter
	port   int32
	status *channelWriter

	mu      sync.Mutex
	reading bool        // the pod takes input
	closed  bool        // the pod's side
	silence *time.Timer // calls stop if nothing comes, while both hold
}

func (f *channelForward) Read(p []byte) (int, error) {
	f.setReading(true)
	defer f.setReading(false)
	return f.Reader.Read(p)
}

func (f *channelForward) setReading(reading bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reading = reading
	f.listenLocked()
}

// listenLocked begins to wait for input, or ends that.
func (f *channelForward) listenLocked() {
	if f.silence != nil {
		f.silence.Stop()
	}
	if f.closed && f.reading {
		f.silence = time.AfterFunc(f.c.sess.timing.halfClosed, f.stop)
	}
}

// Close ends the pod's side. The protocol cannot tell the client, so the client's side ends when nothing comes from it.
func (f *channelForward) Close() error {
	f.mu.Lock()
	f.closed = true
	f.listenLocked()
	f.mu.Unlock()
	return f.channelWriter.Close()
}

// stop discards further input for a port that is done, so that it does not block the other ports.
func (f *channelForward) stop() {
	f.c.in[f.number].r.CloseWithError(io.ErrClosedPipe)
}
