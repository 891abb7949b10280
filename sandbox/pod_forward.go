package sandbox

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/sandbox/dial"
	"github.com/podd-project/podd/sandbox/record"
)

// PortForward copies between stream and a TCP port of the pod until both directions or ctx end. It closes stream.
func (e *Engine) PortForward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	p, err := e.Pod(id)
	if err != nil {
		return err
	}
	if state := p.Status().State; state != record.PodReady {
		return fmt.Errorf("%w: pod sandbox %s is %s, no port of it can be forwarded",
			errdefs.ErrFailedPrecondition, p.ID, state)
	}
	if port < 1 || port > 65535 {
		return fmt.Errorf("%w: %d is not a port", errdefs.ErrInvalidArgument, port)
	}
	conn, err := dial.InTurn(ctx, e.deps.Budgets.Dials, p.ID, func(ctx context.Context) (net.Conn, error) {
		return e.dial(ctx, p, uint16(port))
	})
	if err != nil {
		return err
	}
	return dial.CopyBothWays(ctx, conn, stream)
}

func (e *Engine) dial(ctx context.Context, p *Pod, port uint16) (net.Conn, error) {
	switch {
	case p.Netns == "": // the node's
	case p.OwnKernel:
		return dialPod(ctx, p, port)
	default:
		return e.deps.Network.Dial(ctx, p.ID, port)
	}
	conn, err := dial.Node(ctx, port)
	if err != nil {
		return nil, fmt.Errorf("dial port %d of the node: %w", port, err)
	}
	return conn, nil
}

// dialPod connects to one of the pod's addresses: its localhost is inside the sandbox's kernel and not reachable from
// the host.
func dialPod(ctx context.Context, p *Pod, port uint16) (net.Conn, error) {
	ips := p.Status().IPs
	if len(ips) == 0 {
		return nil, fmt.Errorf("%w: pod sandbox %s has no address to forward a port to",
			errdefs.ErrFailedPrecondition, p.ID)
	}
	conn, err := dial.Any(ctx, ips, port)
	if err != nil {
		return nil, fmt.Errorf("dial port %d of the pod (in a sandbox with its own kernel, only the pod's "+
			"addresses can be reached): %w", port, err)
	}
	return conn, nil
}
