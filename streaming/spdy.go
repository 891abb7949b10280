package streaming

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	wire "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
)

// maxFrame is the maximum payload of one frame, in bytes: all streams share the connection.
const maxFrame = 32 << 10

// openSPDY upgrades to SPDY/3.1 and waits until the client has opened every stream it asked for.
func (s *Server) openSPDY(sess *session, w http.ResponseWriter, r *http.Request, want streamRequest) (*remote, error) {
	version, err := httpstream.Handshake(r, w, []string{
		wire.StreamProtocolV4Name, wire.StreamProtocolV3Name, wire.StreamProtocolV2Name,
	})
	if err != nil {
		return nil, err // Handshake has answered the client
	}
	streams := newCollector(want, version)
	conn, err := upgradeSPDY(sess, w, r, streams.accept)
	if err != nil {
		return nil, err
	}
	structured := version == wire.StreamProtocolV4Name
	if err := streams.wait(sess.ctx, s.timing.create); err != nil {
		sess.finish(func() { streams.finish(sess, conn, outcomeOf(0, err).bytes(structured)) })
		return nil, err
	}
	status := streams.got[wire.StreamTypeError]
	sess.tasks.Go(func() { runEvery(sess.ctx, sess.timing.heartbeat, func() { sendHeartbeat(status) }) })
	return streams.remote(sess, conn, structured), nil
}

// sendHeartbeat sends an empty frame, which clients ignore.
func sendHeartbeat(stream httpstream.Stream) {
	if !finished(stream) {
		_, _ = stream.Write(nil) // conn reports a lost connection
	}
}

// upgradeSPDY upgrades the connection to SPDY.
func upgradeSPDY(
	sess *session, w http.ResponseWriter, r *http.Request, accept httpstream.NewStreamHandler,
) (*spdyConn, error) {
	raw, err := hijackSPDY(w, r)
	if err != nil {
		return nil, fmt.Errorf("upgrade to SPDY/3.1: %w", err)
	}
	return startSPDY(sess, raw, accept)
}

// startSPDY serves SPDY on raw and ends the session when the SPDY connection closes.
func startSPDY(sess *session, raw net.Conn, accept httpstream.NewStreamHandler) (*spdyConn, error) {
	conn, err := newSPDYConn(raw, replyStreams(accept))
	if err != nil {
		return nil, err
	}
	sess.tasks.Go(func() {
		<-conn.CloseChan()
		sess.connLost(errGone)
	})
	return conn, nil
}

// collector collects the streams of one exec or attach as the client opens them.
type collector struct {
	arrived chan arrival

	mu     sync.Mutex
	want   map[string]bool
	got    map[string]httpstream.Stream
	closed bool
}

type arrival struct{ replied <-chan struct{} }

func newCollector(want streamRequest, version string) *collector {
	types := map[string]bool{wire.StreamTypeError: true}
	types[wire.StreamTypeStdin] = want.GetStdin()
	types[wire.StreamTypeStdout] = want.GetStdout()
	types[wire.StreamTypeStderr] = want.GetStderr()
	types[wire.StreamTypeResize] = want.GetTty() && version != wire.StreamProtocolV2Name
	return &collector{want: types, got: map[string]httpstream.Stream{}, arrived: make(chan arrival, len(types))}
}

// accept is called by SPDY for each new stream; it must not block. An error resets the stream.
func (c *collector) accept(stream httpstream.Stream, replied <-chan struct{}) error {
	kind := stream.Headers().Get(wire.StreamType)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return errors.New("session has ended")
	case !c.want[kind]:
		return fmt.Errorf("stream type %.20q is unknown or was not requested", kind)
	case c.got[kind] != nil:
		return fmt.Errorf("stream of type %q is open already", kind)
	}
	c.got[kind] = stream
	c.arrived <- arrival{replied}
	return nil
}

// finish closes the streams, writes the outcome to the error stream if there is one, and ends SPDY.
func (c *collector) finish(sess *session, conn *spdyConn, outcome []byte) {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	// got no longer changes. Errors mean that the client has disconnected.
	for _, kind := range []string{wire.StreamTypeStdout, wire.StreamTypeStderr, wire.StreamTypeError} {
		if c.got[kind] == nil {
			continue
		}
		w := &spdyWriter{stream: c.got[kind], sess: sess}
		if kind == wire.StreamTypeError {
			_, _ = w.Write(outcome)
		}
		_ = w.Close()
	}
	// Reset the streams that SPDY has not registered yet too, so that none of its workers blocks on a reader.
	for _, stream := range c.got {
		_ = stream.Reset()
	}
	_ = conn.Close()
}

// wait returns when all streams are open and acknowledged. If the connection were closed before an acknowledgement is
// sent, the client would wait for it forever.
func (c *collector) wait(ctx context.Context, limit time.Duration) error {
	late := fmt.Errorf("client did not open its streams within %v", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	for _, wanted := range c.want {
		if !wanted {
			continue
		}
		select {
		case a := <-c.arrived:
			select {
			case <-a.replied:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (c *collector) remote(sess *session, conn *spdyConn, structured bool) *remote {
	rem := &remote{finish: func(o outcome) { c.finish(sess, conn, o.bytes(structured)) }}
	writer := func(kind string) io.WriteCloser {
		if c.got[kind] == nil {
			return nil
		}
		return &spdyWriter{stream: c.got[kind], sess: sess}
	}
	if stdin := c.got[wire.StreamTypeStdin]; stdin != nil {
		rem.streams.Stdin = &spdyReader{stream: stdin, sess: sess, closed: conn.CloseChan()}
		// SPDY may be unable to notice the end of the connection: it reads nothing while a worker has unread data.
		context.AfterFunc(sess.ctx, func() { _ = stdin.Reset() })
	}
	rem.streams.Stdout, rem.streams.Stderr = writer(wire.StreamTypeStdout), writer(wire.StreamTypeStderr)
	if resize := c.got[wire.StreamTypeResize]; resize != nil {
		rem.resize = resize
	}
	return rem
}

// spdyReader is a stream from the client.
type spdyReader struct {
	stream httpstream.Stream
	sess   *session
	closed <-chan bool
}

func (r *spdyReader) Read(p []byte) (int, error) {
	n, err := r.stream.Read(p)
	r.sess.touch()
	if errors.Is(err, io.EOF) {
		// SPDY returns EOF for a closed stream, a lost connection and a reset.
		select {
		case <-r.closed:
			return n, errGone
		case <-r.sess.ctx.Done():
			return n, context.Cause(r.sess.ctx)
		default:
		}
	}
	return n, err
}

// spdyWriter is a stream to the client.
type spdyWriter struct {
	stream httpstream.Stream
	sess   *session
	once   sync.Once
}

func (w *spdyWriter) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		part := p[:min(len(p), maxFrame)]
		if finished(w.stream) {
			return n, io.ErrClosedPipe
		}
		var wrote int
		wrote, err = w.stream.Write(part)
		n, p = n+wrote, p[len(part):]
		w.sess.touch()
	}
	return n, err
}

// finished reports whether this side has closed the stream or the client has reset it. SPDY itself would still send.
func finished(stream httpstream.Stream) bool {
	s, ok := stream.(spdyStream)
	return ok && s.IsFinished()
}

// Close ends the stream; a second call does nothing.
func (w *spdyWriter) Close() (err error) {
	w.once.Do(func() {
		if !finished(w.stream) {
			err = w.stream.Close()
		}
	})
	return err
}
