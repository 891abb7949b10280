// Package dial connects to ports of pods and copies what goes through. The engine says where they are; it never looks
// into a pod.
package dial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/podd-project/podd/sandbox/budget"
)

// Timeout bounds the time until a connection is established, with the wait for its turn. The kernel alone would try
// for two minutes.
const Timeout = 10 * time.Second

// errTimeout is the cause of a connection that took longer.
var errTimeout = fmt.Errorf("no connection after %s, is the server in the pod overloaded?: %w",
	Timeout, context.DeadlineExceeded)

// InTurn calls dial when it is the pod's turn. Its context ends after Timeout.
func InTurn(
	ctx context.Context, turns *budget.Pool, podID string, dial func(context.Context) (net.Conn, error),
) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Timeout, errTimeout)
	defer cancel()
	turn, err := turns.Wait(ctx, podID, 1)
	if err != nil {
		return nil, err
	}
	defer turn.Release()
	conn, err := dial(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return conn, err
}

// Node connects to a port of the node itself, without the name localhost: not every node has it in /etc/hosts, and then
// a DNS server would be asked.
func Node(ctx context.Context, port uint16) (net.Conn, error) {
	var errs []error
	for _, ip := range []string{"127.0.0.1", "::1"} {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(int(port))))
		if err == nil {
			return conn, nil
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// Any connects to the port at the first address that accepts. Each address gets its share of the time until ctx
// ends.
func Any(ctx context.Context, ips []string, port uint16) (net.Conn, error) {
	var errs []error
	for i, ip := range ips {
		conn, err := share(ctx, net.JoinHostPort(ip, strconv.Itoa(int(port))), len(ips)-i)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// share takes at most a part in parts of the time until ctx ends.
func share(ctx context.Context, address string, parts int) (net.Conn, error) {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(parts))
		defer cancel()
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

// CopyBothWays copies between conn and stream and closes both. EOF in one direction is passed on, and the other
// direction continues: HTTP clients half-close. It returns when both directions have ended, or ctx.
func CopyBothWays(ctx context.Context, conn net.Conn, stream io.ReadWriteCloser) error {
	stop := context.AfterFunc(ctx, func() {
		conn.Close()
		stream.Close()
	})
	defer stop()
	defer conn.Close()
	in := make(chan error, 1)
	go func() {
		_, err := io.Copy(conn, stream)
		if tcp, ok := conn.(*net.TCPConn); ok {
			tcp.CloseWrite()
		}
		in <- err
	}()
	_, err := io.Copy(stream, conn)
	stream.Close()
	return errors.Join(ignoreClosed(err), ignoreClosed(<-in))
}

// ignoreClosed drops the error of a connection that CopyBothWays closed. A reset by the peer is kept: the caller resets
// its stream, too.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}
