package streaming

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"k8s.io/streaming/pkg/httpstream"
)

// replyStreams returns accept for a SPDY connection, with one addition: it replies to the stream itself, and rejects a
// stream whose reply could not be sent because the connection was closed. Without it spdystream 0.5.1 blocks forever on
// such streams, whose client could keep sessions for good: handleResetFrame sends the reset of a stream without reply
// to a channel that nobody reads on this side, and Write and Close wait for the reply (waitWriteReply). A rejected
// stream is removed from its connection, so handleResetFrame does not find it.
func replyStreams(accept httpstream.NewStreamHandler) httpstream.NewStreamHandler {
	return func(stream httpstream.Stream, replied <-chan struct{}) error {
		inner, ok := stream.(spdyStream)
		if !ok {
			return fmt.Errorf("the SPDY library made a stream of type %T, which cannot reply", stream)
		}
		s := &repliedStream{spdyStream: inner}
		if err := accept(s, replied); err != nil {
			return err
		}
		if err := inner.SendReply(http.Header{}, false); err != nil {
			return fmt.Errorf("acknowledge stream: %w", err)
		}
		s.replied.Store(true)
		return nil
	}
}

// spdyStream is what spdystream.Stream has.
type spdyStream interface {
	httpstream.Stream
	SendReply(headers http.Header, fin bool) error
	IsFinished() bool
}

// repliedStream writes nothing before the reply has been sent.
type repliedStream struct {
	spdyStream
	replied atomic.Bool
}

// Write implements httpstream.Stream.
func (s *repliedStream) Write(p []byte) (int, error) {
	if !s.replied.Load() {
		return 0, io.ErrClosedPipe
	}
	return s.spdyStream.Write(p)
}

// Close implements httpstream.Stream.
func (s *repliedStream) Close() error {
	if !s.replied.Load() {
		return io.ErrClosedPipe
	}
	return s.spdyStream.Close()
}
