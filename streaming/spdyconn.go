package streaming

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/moby/spdystream"
	"github.com/moby/spdystream/spdy"
	"k8s.io/streaming/pkg/httpstream"
	k8sspdy "k8s.io/streaming/pkg/httpstream/spdy"
)

// Limits of the headers of a stream. Those of Kubernetes take less than a quarter. They are compressed, and podd keeps
// them as long as the stream.
const (
	maxControlFrame = 8 << 10
	maxHeaders      = 32
	maxHeaderField  = 1 << 10
)

// spdyConn is a SPDY connection on which the client opens streams. It does what httpstream's does, with limits for what
// a client can make podd keep in memory.
type spdyConn struct {
	*spdystream.Connection
	accept httpstream.NewStreamHandler

	mu      sync.Mutex
	streams map[uint32]httpstream.Stream
}

// newSPDYConn serves SPDY on c until c or the returned connection is closed. accept replies to the streams.
func newSPDYConn(c net.Conn, accept httpstream.NewStreamHandler) (*spdyConn, error) {
	inner, err := spdystream.NewConnectionWithOptions(&frameConn{Conn: c}, true,
		spdy.WithMaxControlFramePayloadSize(maxControlFrame), spdy.WithMaxHeaderCount(maxHeaders),
		spdy.WithMaxHeaderFieldSize(maxHeaderField))
	if err != nil {
		return nil, fmt.Errorf("start SPDY: %w", err)
	}
	s := &spdyConn{Connection: inner, accept: accept, streams: map[uint32]httpstream.Stream{}}
	go inner.Serve(s.open)
	return s, nil
}

// open is called for each stream that the client opens.
func (s *spdyConn) open(stream *spdystream.Stream) {
	replied := make(chan struct{})
	if err := s.accept(stream, replied); err != nil {
		_ = stream.Reset()
		return
	}
	s.mu.Lock()
	s.streams[stream.Identifier()] = stream
	s.mu.Unlock()
	close(replied)
}

// Close resets all streams, which ends SPDY.
func (s *spdyConn) Close() error {
	s.mu.Lock()
	streams := s.streams
	s.streams = map[uint32]httpstream.Stream{}
	s.mu.Unlock()
	for _, stream := range streams {
		_ = stream.Reset()
	}
	return s.Connection.Close()
}

// RemoveStreams forgets finished streams.
func (s *spdyConn) RemoveStreams(streams ...httpstream.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stream := range streams {
		delete(s.streams, stream.Identifier())
	}
}

// hijackSPDY upgrades the request to SPDY/3.1. Errors are also sent to the client.
func hijackSPDY(w http.ResponseWriter, r *http.Request) (net.Conn, error) {
	if !strings.Contains(strings.ToUpper(r.Header.Get(httpstream.HeaderUpgrade)), k8sspdy.HeaderSpdy31) {
		http.Error(w, "the only upgrades are SPDY/3.1 and WebSocket", http.StatusBadRequest)
		return nil, errors.New("client asked for another upgrade than SPDY/3.1 and WebSocket")
	}
	w.Header().Add(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	w.Header().Add(httpstream.HeaderUpgrade, k8sspdy.HeaderSpdy31)
	w.WriteHeader(http.StatusSwitchingProtocols)
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	return bufferedConn{conn, buffered.Reader}, nil
}

// bufferedConn is a connection of which a part was read ahead.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c bufferedConn) Read(p []byte) (int, error) { return c.r.Read(p) }
