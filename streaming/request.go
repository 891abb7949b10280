package streaming

import (
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Exec returns the URL, good for one use within Config.TokenTTL, at which the command of r can be run. Errors are
// errdefs.ErrInvalidArgument for streams that cannot go together, ErrResourceExhausted when too many URLs are unused,
// ErrUnavailable once the server is closed. r belongs to the server from here on.
func (s *Server) Exec(r *cri.ExecRequest) (string, error) {
	if err := checkStreams(r); err != nil {
		return "", err
	}
	return s.url("exec", r)
}

// Attach is as Exec, for the streams of the container's first process.
func (s *Server) Attach(r *cri.AttachRequest) (string, error) {
	if err := checkStreams(r); err != nil {
		return "", err
	}
	return s.url("attach", r)
}

// PortForward is as Exec, for connections to ports of a pod. SPDY clients name the ports themselves, stream by
// stream; r.Port counts for WebSocket clients of the channel protocol only.
func (s *Server) PortForward(r *cri.PortForwardRequest) (string, error) {
	for _, port := range r.GetPort() {
		if port < 1 || port > 65535 {
			return "", fmt.Errorf("%w: port %d is not between 1 and 65535", errdefs.ErrInvalidArgument, port)
		}
	}
	// Two channels per port, and a channel number is one byte whose 255 is taken.
	if len(r.GetPort()) > 127 {
		return "", fmt.Errorf("%w: %d ports in one session, 127 is the most", errdefs.ErrInvalidArgument, len(r.GetPort()))
	}
	return s.url("portforward", r)
}

// streamed is what ExecRequest and AttachRequest have in common.
type streamed interface {
	GetStdin() bool
	GetStdout() bool
	GetStderr() bool
	GetTty() bool
}

func checkStreams(r streamed) error {
	if r.GetTty() && r.GetStderr() {
		return fmt.Errorf("%w: a terminal has no stderr of its own", errdefs.ErrInvalidArgument)
	}
	if !r.GetStdin() && !r.GetStdout() && !r.GetStderr() {
		return fmt.Errorf("%w: none of stdin, stdout and stderr is asked for", errdefs.ErrInvalidArgument)
	}
	return nil
}

func (s *Server) url(kind string, r proto.Message) (string, error) {
	if s.ctx.Err() != nil {
		return "", fmt.Errorf("%w: the streaming server is closed", errdefs.ErrUnavailable)
	}
	token, err := s.tickets.issue(r)
	if err != nil {
		return "", err
	}
	return s.base + "/" + kind + "/" + token, nil
}
