package streaming

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	wire "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// remote is a client of exec or attach with all of its streams open.
type remote struct {
	streams Streams
	// resize carries terminal sizes as JSON; nil without a terminal, or when the protocol has none.
	resize io.Reader
	// finish flushes the streams, sends the outcome and closes the protocol.
	finish func(outcome)
}

// remoteCommand serves an exec or attach. An error means that the session ended early.
func (s *Server) remoteCommand(
	sess *session, w http.ResponseWriter, r *http.Request, want streamRequest, run func(Streams) (int, error),
) error {
	open := s.openSPDY
	if wsstream.IsWebSocketRequest(r) {
		open = s.openWebSocket
	}
	client, err := open(sess, w, r, want)
	if err != nil {
		return fmt.Errorf("open streams: %w", err)
	}
	client.streams.TTY = want.GetTty()
	if client.resize != nil {
		sizes := make(chan TerminalSize, 1)
		client.streams.Resize = sizes
		sess.tasks.Go(func() { readSizes(client.resize, sizes) })
	}
	code, err := callBackend(s.log, func() (int, error) { return run(client.streams) })
	if early := sess.err(); early != nil {
		err = early // the cause; the backend's error only follows from it
	}
	sess.finish(func() { client.finish(outcomeOf(code, err)) })
	return err
}

// maxSizeMessage bounds the JSON of one terminal size.
const maxSizeMessage = 1024

// readSizes forwards sizes until the stream ends. It never blocks on the receiver: only the latest size is kept.
func readSizes(r io.Reader, sizes chan TerminalSize) {
	defer close(sizes)
	limited := &io.LimitedReader{R: r}
	decoder := json.NewDecoder(limited)
	for {
		limited.N = maxSizeMessage
		var size TerminalSize
		if err := decoder.Decode(&size); err != nil {
			// The rest cannot be parsed either, but must be read: all streams share one connection.
			_, _ = io.Copy(io.Discard, r)
			return
		}
		if size.Width == 0 || size.Height == 0 {
			continue
		}
		select {
		case <-sizes:
		default:
		}
		sizes <- size
	}
}

// outcome is the message on the error stream from protocol version 4 on: the fields of a metav1.Status, in JSON,
// that clients read.
type outcome struct {
	Status  string          `json:"status"`
	Message string          `json:"message,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	Details *outcomeDetails `json:"details,omitempty"`
	Code    int             `json:"code,omitempty"`
}

type outcomeDetails struct {
	Causes []outcomeCause `json:"causes"`
}

type outcomeCause struct {
	Type    string `json:"reason"` // sic: metav1.StatusCause
	Message string `json:"message"`
}

// maxMessage bounds the error text sent to a client.
const maxMessage = 4096

func outcomeOf(code int, err error) outcome {
	switch {
	case err != nil:
		return outcome{
			Status: "Failure", Reason: "InternalError", Code: http.StatusInternalServerError,
			Message: "Internal error occurred: " + truncate(err.Error()),
		}
	case code == 0:
		return outcome{Status: "Success"}
	}
	if code < 0 || code > 255 {
		code = 255 // clients expect one byte
	}
	return outcome{
		Status: "Failure", Reason: wire.NonZeroExitCodeReason,
		Message: fmt.Sprintf("command terminated with non-zero exit code: %d", code),
		Details: &outcomeDetails{Causes: []outcomeCause{{Type: wire.ExitCodeCauseType, Message: fmt.Sprint(code)}}},
	}
}

// bytes encodes the outcome: JSON if structured, otherwise (before version 4) only the error text.
func (o outcome) bytes(structured bool) []byte {
	if structured {
		b, _ := json.Marshal(o) // cannot fail: strings and numbers only
		return b
	}
	return []byte(o.Message)
}

func truncate(s string) string {
	if len(s) > maxMessage {
		return s[:maxMessage] + "..."
	}
	return s
}
