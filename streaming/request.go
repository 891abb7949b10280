package streaming

import (
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Exec returns a URL that runs the command of r, for the CRI call with the id. It can be used once, within
// timing.token. Errors are errdefs.ErrInvalidArgument for an invalid combination of streams, ErrResourceExhausted when
// too many URLs are unused and ErrUnavailable once the server is closed. The caller must not change r afterwards.
func (s *Server) Exec(id string, r *cri.ExecRequest) (string, error) {
	if err := checkStreams(r); err != nil {
		return "", err
	}
	return s.url(id, "exec", r)
}

// Attach is like Exec, for the streams of the container's first process.
func (s *Server) Attach(id string, r *cri.AttachRequest) (string, error) {
	if err := checkStreams(r); err != nil {
		return "", err
	}
	return s.url(id, "attach", r)
}

// PortForward is like Exec, for connections to ports of a pod. SPDY clients choose the port of each stream; r.Port is
// only used for WebSocket clients of the channel protocol.
func (s *Server) PortForward(id string, r *cri.PortForwardRequest) (string, error) {
	for _, port := range r.GetPort() {
		if port < 1 || port > 65535 {
			return "", fmt.Errorf("%w: port %d is not between 1 and 65535", errdefs.ErrInvalidArgument, port)
		}
	}
	// Two channels per port; a channel number is one byte, and 255 is reserved.
	if len(r.GetPort()) > 127 {
		return "", fmt.Errorf("%w: request has %d ports, the maximum is 127", errdefs.ErrInvalidArgument, len(r.GetPort()))
	}
	return s.url(id, "portforward", r)
}

// streamRequest is implemented by ExecRequest and AttachRequest.
type streamRequest interface {
	GetStdin() bool
	GetStdout() bool
	GetStderr() bool
	GetTty() bool
}

func checkStreams(r streamRequest) error {
	if r.GetTty() && r.GetStderr() {
		return fmt.Errorf("%w: stderr must not be set with tty: a terminal has one output", errdefs.ErrInvalidArgument)
	}
	if !r.GetStdin() && !r.GetStdout() && !r.GetStderr() {
		return fmt.Errorf("%w: one of stdin, stdout and stderr must be set", errdefs.ErrInvalidArgument)
	}
	return nil
}

func (s *Server) url(id, kind string, r proto.Message) (string, error) {
	if s.ctx.Err() != nil {
		return "", fmt.Errorf("%w: podd is shutting down: the streaming server is closed", errdefs.ErrUnavailable)
	}
	token, err := s.tickets.issue(id, r)
	if err != nil {
		return "", err
	}
	return s.base + "/" + kind + "/" + token, nil
}
