package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"

	"github.com/containerd/errdefs"
)

// Dial connects to a TCP port of the pod's localhost, IPv4 first, then IPv6. Port forwarding uses it for servers that
// listen only there. A pod without an attachment, such as one on the node's network, is errdefs.ErrNotFound.
func (c *CNI) Dial(ctx context.Context, podID string, port uint16) (net.Conn, error) {
	if err := checkPodID(podID); err != nil {
		return nil, err
	}
	r, err := c.readRecord(podID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: pod %s has no network of its own", errdefs.ErrNotFound, podID)
	}
	if err != nil {
		return nil, err
	}
	var conn net.Conn
	err = inNetns(r.Netns, func() (err error) {
		conn, err = dialLocalhost(ctx, port)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("dial port %d of pod %s: %w", port, podID, err)
	}
	return conn, nil
}

// dialLocalhost must run on a thread in the pod's namespace: given a single literal address, net creates the socket in
// the calling goroutine.
func dialLocalhost(ctx context.Context, port uint16) (net.Conn, error) {
	var dialer net.Dialer
	service := strconv.Itoa(int(port))
	conn, err4 := dialer.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", service))
	if err4 == nil {
		return conn, nil
	}
	conn, err6 := dialer.DialContext(ctx, "tcp6", net.JoinHostPort("::1", service))
	if err6 == nil {
		return conn, nil
	}
	return nil, errors.Join(err4, err6)
}
