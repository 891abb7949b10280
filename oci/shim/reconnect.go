package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"

	"github.com/podd-project/podd/oci/process"
)

// errGone is the error of calls to a shim that has exited.
var errGone = fmt.Errorf("the pod's shim has exited: %w", errdefs.ErrUnavailable)

// conn is a connection to a shim.
type conn struct {
	client  *ttrpc.Client
	service string
	timeout time.Duration

	mu sync.Mutex
	// exits are the Wait calls under way, by container and session.
	exits map[[2]string]*exitQuery
}

// exitQuery is one Wait call of the task API, shared by all its waiters. It is not cancelled: it returns with the exit
// of the process or the end of the connection.
type exitQuery struct {
	done     chan struct{}
	response *task.WaitResponse
	err      error
}

// waitExit waits for the exit of a container, or of a session in it.
func (c *conn) waitExit(ctx context.Context, id, execID string) (*task.WaitResponse, error) {
	key := [2]string{id, execID}
	c.mu.Lock()
	e := c.exits[key]
	if e == nil {
		e = &exitQuery{done: make(chan struct{}), response: &task.WaitResponse{}}
		c.exits[key] = e
		go func() {
			e.err = c.callUntil(context.Background(), "Wait", &task.WaitRequest{ID: id, ExecID: execID}, e.response)
			c.mu.Lock()
			delete(c.exits, key)
			c.mu.Unlock()
			close(e.done)
		}()
	}
	c.mu.Unlock()
	select {
	case <-e.done:
		return e.response, e.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// connectShim returns a connection to the shim of the record, the existing one or a new one: after a restart of the
// daemon the address is sufficient.
func (r *Runtime) connectShim(ctx context.Context, rec record) (*conn, error) {
	if rec.Address == "" || !rec.Shim.Alive() {
		return nil, errGone
	}
	return r.dialShim(ctx, endpoint{rec.Address, rec.Protocol})
}

// dialShim connects to an endpoint, unless a connection exists.
func (r *Runtime) dialShim(ctx context.Context, e endpoint) (*conn, error) {
	r.mu.Lock()
	c, closed := r.conns[e.address], r.closed
	r.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("handler %s is closed: %w", r.cfg.Name, errdefs.ErrUnavailable)
	}
	if c != nil {
		return c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CallTimeout)
	defer cancel()
	socket, err := dialSocket(ctx, e.address)
	if err != nil {
		return nil, err
	}
	c = &conn{
		service: "containerd.task.v" + strconv.Itoa(int(e.version)) + ".Task", timeout: r.cfg.CallTimeout,
		exits: map[[2]string]*exitQuery{},
	}
	bounded := boundedConn{socket, r.cfg.CallTimeout / 2}
	c.client = ttrpc.NewClient(bounded, ttrpc.WithOnClose(func() { r.dropConnection(e.address, c) }))
	return r.addConnection(e.address, c)
}

// boundedConn is a connection that is closed when a write waits longer than limit: ttrpc looks at the context of a call
// after it has written the request, and other calls wait for that. A shim that is stopped reads nothing.
type boundedConn struct {
	net.Conn
	limit time.Duration
}

func (c boundedConn) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.limit))
	n, err := c.Conn.Write(b)
	if err != nil {
		_ = c.Close() // part of a request was written; the next call makes a new connection
	}
	return n, err
}

// addConnection registers a new connection, unless another call was faster.
func (r *Runtime) addConnection(address string, c *conn) (*conn, error) {
	r.mu.Lock()
	other, closed := r.conns[address], r.closed
	if other == nil && !closed {
		r.conns[address] = c
	}
	r.mu.Unlock()
	switch {
	case closed:
		_ = c.client.Close()
		return nil, fmt.Errorf("handler %s is closed: %w", r.cfg.Name, errdefs.ErrUnavailable)
	case other != nil:
		_ = c.client.Close()
		return other, nil
	}
	return c, nil
}

// dropConnection removes a connection that was closed.
func (r *Runtime) dropConnection(address string, c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conns[address] == c {
		delete(r.conns, address)
	}
}

// disconnectShim closes the connection to a shim that has exited.
func (r *Runtime) disconnectShim(address string) {
	r.mu.Lock()
	c := r.conns[address]
	delete(r.conns, address)
	r.mu.Unlock()
	if c != nil {
		_ = c.client.Close()
	}
}

// namespaceHeader carries the namespace of a call.
const namespaceHeader = "containerd-namespace-ttrpc"

// call calls the shim, with CallTimeout. Versions 2 and 3 of the task API have the same messages with another service
// name.
func (c *conn) call(ctx context.Context, method string, request, response proto.Message) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return c.callUntil(ctx, method, request, response)
}

// callUntil is call without a timeout but ctx's.
func (c *conn) callUntil(ctx context.Context, method string, request, response proto.Message) error {
	md := ttrpc.MD{}
	md.Set(namespaceHeader, namespace)
	err := c.client.Call(ttrpc.WithMetadata(ctx, md), c.service, method, request, response)
	if err == nil {
		return nil
	}
	ended := contextEnd(ctx)
	switch {
	case ended != nil:
		return fmt.Errorf("shim %s: %w", method, ended)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("shim %s: it reads no requests: %w", method, context.DeadlineExceeded)
	case errors.Is(err, ttrpc.ErrClosed), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("shim %s: %w: %w", method, err, errdefs.ErrUnavailable)
	}
	return fmt.Errorf("shim %s: %w", method, errgrpc.ToNative(err))
}

// contextEnd returns the cause of the end of ctx, nil before that. The shim gets the deadline and gives up itself: on a
// busy machine its answer may arrive before the deadline is noticed here.
func contextEnd(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// identify asks a shim for its process, which must run in the bundle.
func (c *conn) identify(ctx context.Context, b bundle) (process.Process, error) {
	response := &task.ConnectResponse{}
	if err := c.call(ctx, "Connect", &task.ConnectRequest{ID: b.ID()}, response); err != nil {
		return process.Process{}, err
	}
	for _, p := range bundleProcesses(b) {
		if p.Pid == int(response.GetShimPid()) {
			return p, nil
		}
	}
	return process.Process{}, fmt.Errorf("the shim reports process %d as its own, which does not run in %s: %w",
		response.GetShimPid(), b.Dir(), errdefs.ErrFailedPrecondition)
}
