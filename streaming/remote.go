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
	// resize carries terminal sizes as JSON; nil when the protocol has none.
	resize io.Reader
	// finish sends what is left in the streams and then the outcome, and ends the protocol in good order.
	finish func(outcome)
}

// remoteCommand serves an exec or attach. The error says why it ended early.
func (s *Server) remoteCommand(sess *session, w http.ResponseWriter, r *http.Request, want streamed, run func(Streams) (int, error)) error {
	open := s.openSPDY
	if wsstream.IsWebSocketRequest(r) {
		open = s.openWebSocket
	}
	client, err := open(sess, w, r, want)
	if err != nil {
		return fmt.Errorf("open streams: %w", err)
	}
	client.streams.TTY = want.GetTty()
	if client.resize != nil && want.GetTty() {
		sizes := make(chan TerminalSize, 1)
		client.streams.Resize = sizes
		sess.tasks.Go(func() { readSizes(client.resize, sizes) })
	}
	code, err := guard(func() (int, error) { return run(client.streams) })
	if early := sess.err(); early != nil {
		err = early // the backend only noticed that it should stop
	}
	sess.finish(func() { client.finish(outcomeOf(code, err)) })
	return err
}

// maxSizeMessage bounds the JSON of one terminal size.
const maxSizeMessage = 1024

// readSizes passes sizes on until the stream ends. It never waits for the receiver: only the newest size counts.
func readSizes(r io.Reader, sizes chan TerminalSize) {
	defer close(sizes)
	limited := &io.LimitedReader{R: r}
	decoder := json.NewDecoder(limited)
	for {
		limited.N = maxSizeMessage
		var size TerminalSize
		if err := decoder.Decode(&size); err != nil {
			// What follows is not understood either, but must be read: it shares a connection with the rest.
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

// outcome is what the error stream carries from protocol version 4 on: a metav1.Status in JSON, of which this is
// the part that clients look at.
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
			Message: "Internal error occurred: " + clip(err.Error()),
		}
	case code == 0:
		return outcome{Status: "Success"}
	}
	if code < 0 || code > 255 {
		code = 255 // clients parse one byte
	}
	return outcome{
		Status: "Failure", Reason: wire.NonZeroExitCodeReason,
		Message: fmt.Sprintf("command terminated with non-zero exit code: %d", code),
		Details: &outcomeDetails{Causes: []outcomeCause{{Type: wire.ExitCodeCauseType, Message: fmt.Sprint(code)}}},
	}
}

// bytes is the outcome as a protocol version has it: JSON, or before version 4 the text of a failure.
func (o outcome) bytes(structured bool) []byte {
	if structured {
		b, _ := json.Marshal(o) // strings and numbers only
		return b
	}
	return []byte(o.Message)
}

func clip(s string) string {
	if len(s) > maxMessage {
		return s[:maxMessage] + "..."
	}
	return s
}
