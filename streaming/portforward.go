package streaming

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	wire "k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// maxForwards bounds the connections of one port-forward session, complete or not.
const maxForwards = 1024

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
		return err // and told to the client
	}
	f := newForwards(s, sess, pod)
	conn, err := upgradeSPDY(sess, w, r, f.accept)
	if err != nil {
		return err
	}
	return f.serve(conn)
}

// call connects one stream to the pod and tells how it ended.
func (s *Server) call(ctx context.Context, pod string, port int32, stream io.ReadWriteCloser) error {
	_, err := guard(func() (struct{}, error) { return struct{}{}, s.backend.PortForward(ctx, pod, port, stream) })
	if err != nil && ctx.Err() == nil {
		logrus.WithError(err).WithFields(logrus.Fields{"pod": pod, "port": port}).Info("forwarded connection failed")
	}
	return err
}

// broken tells errors of one connection's peer from those of forwarding. kubectl gives up the whole session when it
// is told of an error (kubernetes/kubernetes#111825), so of these it is not.
func broken(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.ErrClosedPipe)
}

// forwards are the forwarded connections of one SPDY session. Each is a pair of streams, data and error, with the
// same request id.
type forwards struct {
	server *Server
	sess   *session
	pod    string
	// conn may be used once opened is closed: SPDY delivers streams before it is handed out.
	conn   httpstream.Connection
	opened chan struct{}
	calls  sync.WaitGroup

	mu     sync.Mutex
	half   map[string]*forward
	active int
	closed bool
}

// forward is one connection.
type forward struct {
	port      int32
	data, err httpstream.Stream
	replied   []<-chan struct{}
	expiry    *time.Timer
}

func newForwards(s *Server, sess *session, pod string) *forwards {
	return &forwards{server: s, sess: sess, pod: pod, opened: make(chan struct{}), half: map[string]*forward{}}
}

// serve returns when the session has ended and all connections with it.
func (f *forwards) serve(conn httpstream.Connection) error {
	f.conn = conn
	close(f.opened)
	<-f.sess.ctx.Done()
	cause := f.sess.err()
	f.mu.Lock()
	f.closed = true
	half := f.half
	f.half = nil
	f.mu.Unlock()
	for _, fw := range half {
		fw.expiry.Stop()
		fw.reset()
	}
	_ = conn.Close()
	f.calls.Wait()
	if errors.Is(cause, errGone) {
		return nil // how every such session ends
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
		return errors.New("session is over")
	}
	fw := f.half[id]
	if fw == nil {
		if f.active >= maxForwards {
			return errors.New("too many connections in one session")
		}
		f.active++
		fw = &forward{port: port}
		fw.expiry = time.AfterFunc(f.server.cfg.CreationTimeout, func() { f.expire(id, fw) })
		f.half[id] = fw
	}
	if err := fw.add(stream, port); err != nil {
		return err
	}
	fw.replied = append(fw.replied, replied)
	if fw.data != nil && fw.err != nil {
		fw.expiry.Stop()
		delete(f.half, id)
		f.calls.Go(func() { f.run(fw) })
	}
	return nil
}

// add takes the stream as one half of the connection.
func (fw *forward) add(stream httpstream.Stream, port int32) error {
	half := &fw.data
	if stream.Headers().Get(wire.StreamType) == wire.StreamTypeError {
		half = &fw.err
	}
	if *half != nil || fw.port != port {
		return errors.New("stream does not fit the other with its request id")
	}
	*half = stream
	return nil
}

// parseHeaders checks a stream's headers: the port, the half it is, and which other half it belongs to.
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
		return 0, "", errors.New("request id is missing or too long")
	}
	return int32(n), id, nil
}

// expire gives up a connection whose other half has not come.
func (f *forwards) expire(id string, fw *forward) {
	f.mu.Lock()
	incomplete := f.half[id] == fw
	if incomplete {
		delete(f.half, id)
		f.active--
	}
	f.mu.Unlock()
	if incomplete {
		<-f.opened
		fw.reset()
		f.conn.RemoveStreams(fw.streams()...)
	}
}

// run connects a complete pair to the pod.
func (f *forwards) run(fw *forward) {
	defer f.done(fw)
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
	f.calls.Go(func() { every(ctx, f.sess.timing.heartbeat, func() { beat(fw.err) }) })
	// A connection that the client has reset reads like one whose input has ended, after which the pod may stay
	// silent for good.
	f.calls.Go(func() {
		every(ctx, f.sess.timing.check, func() {
			if finished(fw.data) {
				cancel(syscall.ECONNRESET)
			}
		})
	})
	err := f.server.call(ctx, f.pod, fw.port, stream)
	if err == nil {
		_ = stream.Close()
		return
	}
	if !broken(err) && ctx.Err() == nil {
		fmt.Fprintf(fw.err, "error forwarding port %d: %s", fw.port, clip(err.Error()))
		_ = fw.err.Close()
	}
	_ = fw.data.Reset()
}

// done closes the pair and makes SPDY forget it.
func (f *forwards) done(fw *forward) {
	if !finished(fw.err) {
		_ = fw.err.Close()
	}
	fw.reset() // sends nothing for what is closed already
	f.conn.RemoveStreams(fw.streams()...)
	f.mu.Lock()
	f.active--
	f.mu.Unlock()
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

// forwardStream is what the backend gets of a connection.
type forwardStream struct {
	spdyReader
	spdyWriter
}
