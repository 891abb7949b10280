package streaming

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	wire "k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// portForward serves a session in any of its three protocols: SPDY, SPDY within WebSocket, and WebSocket channels.
func (s *Server) portForward(sess *session, w http.ResponseWriter, r *http.Request, req *cri.PortForwardRequest) error {
	pod := req.GetPodSandboxId()
	switch {
	case wsstream.IsWebSocketRequestWithTunnelingProtocol(r):
		return s.forwardTunnel(sess, w, r, pod)
	case wsstream.IsWebSocketRequest(r):
		return s.forwardChannels(sess, w, r, req)
	}
	if _, err := httpstream.Handshake(r, w, wire.SupportedProtocols); err != nil {
		return err // Handshake has answered the client
	}
	f := newForwards(s, sess, pod)
	conn, err := upgradeSPDY(sess, w, r, f.accept)
	if err != nil {
		return err
	}
	return f.serve(conn)
}

// forwardConn connects one stream to the pod and logs a failure.
func (s *Server) forwardConn(ctx context.Context, pod string, port int32, stream io.ReadWriteCloser) error {
	_, err := callBackend(s.log, func() (int, error) { return 0, s.backend.PortForward(ctx, pod, port, stream) })
	if err != nil && ctx.Err() == nil {
		s.log.WithError(err).WithFields(logrus.Fields{"pod": pod, "port": port}).Info("failed to forward connection")
	}
	return err
}

// isPeerClosed reports whether the pod's side of one connection closed it. Such an error is not sent to the client:
// kubectl ends the whole session on any error (kubernetes/kubernetes#111825).
func isPeerClosed(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.ErrClosedPipe)
}

// forwards holds the forwarded connections of one SPDY session. Each is a pair of streams, data and error, with the
// same request id.
type forwards struct {
	server *Server
	sess   *session
	pod    string
	// conn is set before opened is closed. SPDY may deliver streams earlier.
	conn   *spdyConn
	opened chan struct{}
	calls  sync.WaitGroup

	mu         sync.Mutex
	incomplete map[string]*forward // by request id; one stream of two is open
	closed     bool
}

// forward is one forwarded connection.
type forward struct {
	port      int32
	data, err httpstream.Stream
	replied   []<-chan struct{}
	expiry    *time.Timer
	release   func()
}

func newForwards(s *Server, sess *session, pod string) *forwards {
	return &forwards{server: s, sess: sess, pod: pod, opened: make(chan struct{}), incomplete: map[string]*forward{}}
}

// serve returns after the session and all its connections end.
func (f *forwards) serve(conn *spdyConn) error {
	f.conn = conn
	close(f.opened)
	<-f.sess.ctx.Done()
	cause := f.sess.err()
	f.mu.Lock()
	f.closed = true
	incomplete := f.incomplete
	f.incomplete = nil
	f.mu.Unlock()
	for _, fw := range incomplete {
		fw.expiry.Stop()
		fw.release()
		fw.reset()
	}
	_ = conn.Close()
	f.calls.Wait()
	if errors.Is(cause, errGone) {
		return nil // the client always ends the session by disconnecting
	}
	return cause
}

// accept is called by SPDY for each new stream; it must not block. An error resets the stream.
func (f *forwards) accept(stream httpstream.Stream, replied <-chan struct{}) error {
	port, id, err := parseHeaders(stream.Headers())
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return errors.New("session has ended")
	}
	fw := f.incomplete[id]
	if fw == nil {
		release, err := f.server.limits.Forward(f.pod)
		if err != nil {
			return err
		}
		fw = &forward{port: port, release: release}
		fw.expiry = time.AfterFunc(f.server.timing.create, func() { f.expire(id, fw) })
		f.incomplete[id] = fw
	}
	if err := fw.addStream(stream, port); err != nil {
		return err
	}
	fw.replied = append(fw.replied, replied)
	if fw.data != nil && fw.err != nil {
		fw.expiry.Stop()
		delete(f.incomplete, id)
		f.calls.Go(func() { f.run(fw) })
	}
	return nil
}

// addStream adds the data or the error stream of the connection.
func (fw *forward) addStream(stream httpstream.Stream, port int32) error {
	half := &fw.data
	if stream.Headers().Get(wire.StreamType) == wire.StreamTypeError {
		half = &fw.err
	}
	if *half != nil || fw.port != port {
		return errors.New("request id is in use by a stream of the same type or of another port")
	}
	*half = stream
	return nil
}

// parseHeaders checks a stream's headers and returns its port and request id.
func parseHeaders(h http.Header) (port int32, id string, err error) {
	n, err := strconv.ParseUint(h.Get(wire.PortHeader), 10, 16)
	if err != nil || n == 0 {
		return 0, "", fmt.Errorf("port %.20q is not between 1 and 65535", h.Get(wire.PortHeader))
	}
	if t := h.Get(wire.StreamType); t != wire.StreamTypeData && t != wire.StreamTypeError {
		return 0, "", fmt.Errorf("stream type %.20q is neither data nor error", t)
	}
	id = h.Get(wire.PortForwardRequestIDHeader)
	if id == "" || len(id) > 64 {
		return 0, "", errors.New("request id must have 1 to 64 characters")
	}
	return int32(n), id, nil
}

// expire resets a connection whose second stream was not opened in time.
func (f *forwards) expire(id string, fw *forward) {
	f.mu.Lock()
	incomplete := f.incomplete[id] == fw
	if incomplete {
		delete(f.incomplete, id)
	}
	f.mu.Unlock()
	if incomplete {
		fw.release()
		<-f.opened
		fw.reset()
		f.conn.RemoveStreams(fw.streams()...)
	}
}

// run connects a complete pair to the pod.
func (f *forwards) run(fw *forward) {
	defer f.release(fw)
	<-f.opened
	for _, replied := range fw.replied {
		select {
		case <-replied:
		case <-f.sess.ctx.Done():
			return
		}
	}
	ctx, cancel := context.WithCancelCause(f.sess.ctx)
	defer cancel(nil)
	stream := &forwardStream{
		spdyReader: spdyReader{fw.data, f.sess, f.conn.CloseChan()},
		spdyWriter: spdyWriter{stream: fw.data, sess: f.sess},
	}
	f.calls.Go(func() { runEvery(ctx, f.sess.timing.heartbeat, func() { sendHeartbeat(fw.err) }) })
	// A connection reset by the client reads as end of input, after which the pod may never send anything. One whose pod
	// has closed its side looks the same: it lasts while input comes.
	f.calls.Go(func() {
		last := int64(0)
		runEvery(ctx, f.sess.timing.check, func() {
			received := stream.received.Load()
			if finished(fw.data) && received == last {
				cancel(syscall.ECONNRESET)
			}
			last = received
		})
	})
	err := f.server.forwardConn(ctx, f.pod, fw.port, stream)
	if err == nil {
		_ = stream.Close()
		return
	}
	if !isPeerClosed(err) && ctx.Err() == nil {
		fmt.Fprintf(fw.err, "error forwarding port %d: %s", fw.port, truncate(err.Error()))
		_ = fw.err.Close()
	}
	_ = fw.data.Reset()
}

// release closes the pair and removes its streams from the SPDY connection.
func (f *forwards) release(fw *forward) {
	if !finished(fw.err) {
		_ = fw.err.Close()
	}
	fw.reset() // sends nothing for streams that are closed already
	f.conn.RemoveStreams(fw.streams()...)
	fw.release()
}

func (fw *forward) streams() (present []httpstream.Stream) {
	for _, s := range []httpstream.Stream{fw.data, fw.err} {
		if s != nil {
			present = append(present, s)
		}
	}
	return present
}

func (fw *forward) reset() {
	for _, s := range fw.streams() {
		_ = s.Reset()
	}
}

// forwardStream is a connection as passed to the backend.
type forwardStream struct {
	spdyReader
	spdyWriter
	// received is how many bytes came from the client.
	received atomic.Int64
}

func (s *forwardStream) Read(p []byte) (int, error) {
	n, err := s.spdyReader.Read(p)
	s.received.Add(int64(n))
	return n, err
}
