package streaming

import (
	"context"
	"io"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// Backend does what a redeemed URL stands for. Its calls last as long as the session: they must return soon after
// ctx ends, which it does when the client is gone, when the session was idle for too long and when the server
// closes (context.Cause says which). A panic in a call ends that session only.
type Backend interface {
	// Exec runs cmd in a container until it exits and returns its exit code; an error means that it could not be
	// run or watched, and is shown to the user.
	Exec(ctx context.Context, containerID string, cmd []string, s Streams) (exitCode int, err error)
	// Attach joins the streams to those of the container's first process until the process ends or the client
	// leaves. Several clients may be attached at once.
	Attach(ctx context.Context, containerID string, s Streams) error
	// PortForward connects stream to the port inside the pod and copies both ways until both are at their end.
	// Close on stream ends the direction to the client, like CloseWrite on a socket. EPIPE and ECONNRESET (wrapped
	// or not) reset this stream without a word; any other error is also told to the client, which may then give
	// up the session.
	PortForward(ctx context.Context, podID string, port int32, stream io.ReadWriteCloser) error
}

// Streams are a client's ends of a command's streams. Those the client did not ask for are nil.
type Streams struct {
	// Stdin gives io.EOF when the client closed its input, and another error when the client is gone: half of an
	// upload must not look like all of it. A Read never outlives the session, so a Backend may leave one behind.
	Stdin io.Reader
	// Stdout and Stderr block while the client does not read. Closing them early is allowed, not needed.
	Stdout, Stderr io.WriteCloser
	// TTY: the command wants a terminal; Stderr is nil then.
	TTY bool
	// Resize gives the newest size of the client's terminal, and is closed with the session; nil without a TTY.
	Resize <-chan TerminalSize
}

// TerminalSize is a terminal's size in character cells, both sides above zero.
type TerminalSize = remotecommand.TerminalSize
