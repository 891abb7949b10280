package streaming

import (
	"context"
	"io"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// Backend runs the sessions of redeemed URLs. A call lasts as long as its session and must return soon after ctx ends:
// when the client disconnects, when the session was idle for too long, and when the server closes (context.Cause
// returns which). A panic in a call ends that session only.
type Backend interface {
	// PodOf returns the id of a container's pod, "" if the container does not exist. It must not block.
	PodOf(containerID string) string
	// Exec runs cmd in a container until it exits and returns its exit code; an error means that it could not be
	// run or waited for, and is shown to the user.
	Exec(ctx context.Context, containerID string, cmd []string, s Streams) (exitCode int, err error)
	// Attach joins the streams to those of the container's first process until the process ends or the client
	// leaves. Several clients may be attached at once.
	Attach(ctx context.Context, containerID string, s Streams) error
	// PortForward connects stream to the port inside the pod and copies in both directions until both end. Close on
	// stream ends the direction to the client, like CloseWrite on a socket. EPIPE and ECONNRESET (wrapped or not) reset
	// this stream without a message; any other error is also sent to the client, which may then end the session.
	PortForward(ctx context.Context, podID string, port int32, stream io.ReadWriteCloser) error
	// Ended is called at the end of each session with its error: nil also for a command that has failed.
	Ended(session SessionInfo, err error)
}

// Streams are a client's ends of a command's streams. Those the client did not ask for are nil.
type Streams struct {
	// Request is the id of the CRI call, for Exec.
	Request string
	// Stdin returns io.EOF when the client closed its input, and another error when the client disconnected: a
	// truncated upload must not look complete. A Read never outlives the session, so a Backend may leave one blocked.
	Stdin io.Reader
	// Stdout and Stderr block while the client does not read. Closing them early is allowed but not required.
	Stdout, Stderr io.WriteCloser
	// TTY is set when the command runs in a terminal; Stderr is nil then.
	TTY bool
	// Resize receives the latest size of the client's terminal and is closed with the session; nil without a TTY.
	Resize <-chan TerminalSize
}

// TerminalSize is a terminal's size in character cells, both above zero.
type TerminalSize = remotecommand.TerminalSize
