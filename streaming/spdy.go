package streaming

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	wire "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// chunk is the most one frame carries, so that no stream holds the others up for long.
const chunk = 32 << 10

// openSPDY upgrades to SPDY/3.1 and waits until the client has opened every stream it asked for.
func (s *Server) openSPDY(sess *session, w http.ResponseWriter, r *http.Request, want streamed) (*remote, error) {
	version, err := httpstream.Handshake(r, w, []string{wire.StreamProtocolV4Name, wire.StreamProtocolV3Name, wire.StreamProtocolV2Name})
	if err != nil {
		return nil, err // and told to the client
	}
	streams := newCollector(want, version)
	conn, err := upgradeSPDY(sess, w, r, streams.accept)
	if err != nil {
		return nil, err
	}
	structured := version == wire.StreamProtocolV4Name
	if err := streams.wait(sess.ctx, s.cfg); err != nil {
		sess.finish(func() { streams.finish(sess, conn, outcomeOf(0, err).bytes(structured)) })
		return nil, err
	}
	status := streams.got[wire.StreamTypeError]
	sess.tasks.Go(func() { every(sess.ctx, sess.timing.heartbeat, func() { beat(status) }) })
	return streams.remote(sess, conn, structured), nil
}

// beat sends an empty frame, which means nothing.
func beat(stream httpstream.Stream) {
	if !finished(stream) {
		_, _ = stream.Write(nil) // an error is a lost connection, which conn has reported
	}
}

// upgradeSPDY gives the connection to SPDY and ends the session when SPDY ends.
func upgradeSPDY(sess *session, w http.ResponseWriter, r *http.Request, accept httpstream.NewStreamHandler) (httpstream.Connection, error) {
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, accept)
	if conn == nil {
		return nil, errors.New("client was refused the upgrade to SPDY/3.1")
	}
	sess.tasks.Go(func() {
		<-conn.CloseChan()
		sess.lost(errGone)
	})
	return conn, nil
}

// collector gathers the streams of one exec or attach as the client opens them.
type collector struct {
	arrived chan arrival

	mu     sync.Mutex
	want   map[string]bool
	got    map[string]httpstream.Stream
	closed bool
}

type arrival struct{ replied <-chan struct{} }

func newCollector(want streamed, version string) *collector {
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
		return errors.New("session is over")
	case !c.want[kind]:
		return fmt.Errorf("stream type %.20q is unknown or was not asked for", kind)
	case c.got[kind] != nil:
		return fmt.Errorf("second stream of type %q", kind)
	}
	c.got[kind] = stream
	c.arrived <- arrival{replied}
	return nil
}

// finish closes the streams, writes the outcome to the error stream if there is one, and ends SPDY.
func (c *collector) finish(sess *session, conn httpstream.Connection, outcome []byte) {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	// Nobody changes got from here on. A client that is gone makes all of this fail, and needs none of it.
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
	// Reset those too that SPDY has not registered yet, so that none of its workers waits for a reader.
	for _, stream := range c.got {
		_ = stream.Reset()
	}
	_ = conn.Close()
}

// wait returns when all streams are open and acknowledged: a connection closed before an acknowledgement is sent
// would leave the client waiting for it.
func (c *collector) wait(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.CreationTimeout, errors.New("client did not open its streams in time"))
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

func (c *collector) remote(sess *session, conn httpstream.Connection, structured bool) *remote {
	rem := &remote{finish: func(o outcome) { c.finish(sess, conn, o.bytes(structured)) }}
	writer := func(kind string) io.WriteCloser {
		if c.got[kind] == nil {
			return nil
		}
		return &spdyWriter{stream: c.got[kind], sess: sess}
	}
	if stdin := c.got[wire.StreamTypeStdin]; stdin != nil {
		rem.streams.Stdin = &spdyReader{stream: stdin, sess: sess, closed: conn.CloseChan()}
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
		// SPDY says EOF for a closed stream and for a lost connection.
		select {
		case <-r.closed:
			return n, errGone
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
		part := p[:min(len(p), chunk)]
		if w.over() {
			return n, io.ErrClosedPipe
		}
		var wrote int
		wrote, err = w.stream.Write(part)
		n, p = n+wrote, p[len(part):]
		w.sess.touch()
	}
	return n, err
}

// over tells that this side has closed the stream or the client has reset it; SPDY would send the bytes all the same.
func (w *spdyWriter) over() bool { return finished(w.stream) }

func finished(stream httpstream.Stream) bool {
	f, ok := stream.(interface{ IsFinished() bool })
	return ok && f.IsFinished()
}

// Close tells the client that nothing follows; a second call does nothing.
func (w *spdyWriter) Close() (err error) {
	w.once.Do(func() {
		if !w.over() {
			err = w.stream.Close()
		}
	})
	return err
}
