package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// dialThreads bounds the threads that create sockets in pods' namespaces at the same time.
const dialThreads = 32

// localhost are the addresses that Dial tries first, in this order.
var localhost = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// Dial connects to a TCP port in the pod's namespace: of localhost, IPv4 first, then IPv6, or of the pod's addresses.
// Servers may listen at some of them only. A pod without an attachment, such as one on the node's network, is
// errdefs.ErrNotFound.
//
// Only the creation of the socket needs a thread in the pod's namespace. A server that does not accept delays a
// goroutine, until ctx ends.
func (c *CNI) Dial(ctx context.Context, podID string, port uint16) (net.Conn, error) {
	if err := checkPodID(podID); err != nil {
		return nil, err
	}
	r, err := c.readRecord(podID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: pod %s is not attached to a network", errdefs.ErrNotFound, podID)
	}
	if err != nil {
		return nil, err
	}
	pod, _ := parseResult(r.Result, c.cfg().IPPreference) // an invalid result has no addresses
	var errs []error
	for _, addr := range slices.Concat(localhost, pod.IPs) {
		conn, err := c.dialIn(ctx, r.Netns, netip.AddrPortFrom(addr, port))
		if err == nil {
			return conn, nil
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("dial port %d of pod %s: %w", port, podID, errors.Join(errs...))
}

// dialIn connects to the address in a network namespace.
func (c *CNI) dialIn(ctx context.Context, netns string, to netip.AddrPort) (net.Conn, error) {
	socket, err := c.socketIn(ctx, netns, to.Addr())
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	if err := connect(ctx, socket, sockaddr(to)); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", to, err)
	}
	return net.FileConn(socket) // a duplicate, of Go's own type
}

// socketIn creates a TCP socket in a network namespace. It needs a thread, and waits if too many are in use.
func (c *CNI) socketIn(ctx context.Context, netns string, addr netip.Addr) (*os.File, error) {
	if err := c.entering.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("wait for a thread: %w", context.Cause(ctx))
	}
	defer c.entering.Release(1)
	family := unix.AF_INET
	if addr.Is6() {
		family = unix.AF_INET6
	}
	fd := -1
	err := inNetns(netns, func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		return os.NewSyscallError("socket", err)
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "socket"), nil // non-blocking: Go's poller waits for it
}

// connect connects a non-blocking socket. It waits in Go's poller, without a thread.
func connect(ctx context.Context, socket *os.File, to unix.Sockaddr) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = socket.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	var result error
	err = raw.Write(func(fd uintptr) (done bool) {
		// Further calls return the state of the first one: EALREADY, EISCONN, or why it failed.
		result = unix.Connect(int(fd), to)
		return !errors.Is(result, unix.EINPROGRESS) && !errors.Is(result, unix.EALREADY) && !errors.Is(result, unix.EINTR)
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case errors.Is(result, unix.EISCONN):
		return nil
	}
	return os.NewSyscallError("connect", result)
}

func sockaddr(to netip.AddrPort) unix.Sockaddr {
	if to.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	}
	return &unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}
}
