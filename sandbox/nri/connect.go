package nri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/process"
)

const (
	// queuedFrames bounds the memory of unread messages of a plugin, in frames of up to 4 MiB.
	queuedFrames = 16
	// writeLimit bounds a write to a plugin that does not read.
	writeLimit = 2 * time.Second
)

// connection is a plugin that has connected, until it has joined or failed.
type connection struct {
	p   *Plugins
	one *plugin
	// config is passed to the plugin.
	config string
	// registered gets the plugin's registration, at most one.
	registered chan *api.RegisterPluginRequest
	joined     chan struct{} // closed when the plugin has joined
}

// program is a plugin that podd has launched; the zero value is one that names itself.
type program struct {
	name, config string
	pid          int
}

// connect makes a plugin of a connection: it registers, is configured and joins. The plugin is closed when ctx ends.
func (p *Plugins) connect(ctx context.Context, conn net.Conn, from program) (*plugin, error) {
	if err := p.admit(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c := &connection{
		p: p, config: from.config, registered: make(chan *api.RegisterPluginRequest, 1), joined: make(chan struct{}),
		one: &plugin{
			since: time.Now(), timeout: p.cfg.RequestTimeout, syncTimeout: p.cfg.RegistrationTimeout,
			launched: from.name != "", pid: from.pid,
			calls: make(chan *call, queueLength), updates: make(chan func(), updatesLength), closed: make(chan struct{}),
		},
	}
	peer, err := peerOf(conn)
	if err != nil {
		p.dismiss()
		return nil, errors.Join(err, conn.Close())
	}
	if c.one.launched { // the peer of a socket pair is its maker
		c.one.index, c.one.base, _ = api.ParsePluginName(from.name) // it was checked before
	} else {
		c.one.pid = int(peer.Pid)
	}
	if err := c.serve(conn); err != nil {
		p.dismiss()
		return nil, errors.Join(err, conn.Close())
	}
	context.AfterFunc(ctx, func() { c.one.close(errClosed) })
	p.work.Go(c.end)
	if err = c.register(ctx); err == nil {
		err = p.join(c.one)
	}
	if err != nil {
		c.one.close(err)
		return nil, err
	}
	close(c.joined)
	c.one.log.WithField("events", c.one.events.PrettyString()).Info("NRI plugin connected")
	return c.one, nil
}

// end removes and disconnects the plugin when it has been closed.
func (c *connection) end() {
	<-c.one.closed
	c.p.leave(c.one)
	c.one.hangUp()
	c.p.dismiss()
	select {
	case <-c.joined:
		c.one.log.WithError(c.one.reason).Warn("NRI plugin disconnected")
	default: // connect returns the reason
	}
}

// admit counts one more connection.
func (p *Plugins) admit() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.connections >= maxPlugins {
		return fmt.Errorf("%w: %d NRI plugins are connected already", errdefs.ErrResourceExhausted, maxPlugins)
	}
	p.connections++
	return nil
}

func (p *Plugins) dismiss() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.connections--
}

// peerOf returns the process at the other end, which must be of podd's user, which is root.
func peerOf(conn net.Conn) (*unix.Ucred, error) {
	peer, err := process.Peer(conn)
	if err != nil {
		return nil, fmt.Errorf("find out who connects as NRI plugin: %w", err)
	}
	if int(peer.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%w: process %d of user %d connects as NRI plugin, only podd's own user may, root",
			errdefs.ErrPermissionDenied, peer.Pid, peer.Uid)
	}
	return peer, nil
}

// boundedConn is a connection on which no write waits longer than writeLimit: the protocol's writes have no context.
type boundedConn struct{ net.Conn }

func (c boundedConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// serve sets up the protocol: podd calls the plugin, and the plugin calls podd, by one connection.
func (c *connection) serve(conn net.Conn) error {
	mux := multiplex.Multiplex(boundedConn{conn}, multiplex.WithBlockedRead(),
		multiplex.WithReadQueueLength(queuedFrames))
	calls, err := mux.Open(multiplex.PluginServiceConn)
	if err != nil {
		return err
	}
	listener, err := mux.Listen(multiplex.RuntimeServiceConn)
	if err != nil {
		return err
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		return err
	}
	client := ttrpc.NewClient(calls, ttrpc.WithOnClose(func() { c.one.close(errClosed) }))
	c.one.service = api.NewPluginClient(client)
	c.one.hangUp = func() {
		mux.Close()
		client.Close()
		server.Close()
	}
	api.RegisterRuntimeService(server, c)
	go func() {
		err := server.Serve(context.Background(), listener)
		c.one.close(fmt.Errorf("%w: %w", errClosed, err))
	}()
	mux.Unblock()
	return nil
}

// register waits for the plugin's registration and configures it.
func (c *connection) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.p.cfg.RegistrationTimeout)
	defer cancel()
	select {
	case r := <-c.registered:
		if !c.one.launched {
			c.one.index, c.one.base = r.GetPluginIdx(), r.GetPluginName()
		}
	case <-c.one.closed:
		return errors.Join(errors.New("an NRI plugin has disconnected before it registered"), c.one.reason)
	case <-ctx.Done():
		return fmt.Errorf("%w: process %d has connected as NRI plugin and did not register within %v",
			context.DeadlineExceeded, c.one.pid, c.p.cfg.RegistrationTimeout)
	}
	c.one.log = c.p.log.WithField("nri_plugin", c.one.name()).WithField("pid", c.one.pid)
	c.one.stats = c.p.statsOf(c.one.name())
	return c.configure(ctx)
}

func (c *connection) configure(ctx context.Context) error {
	reply, err := c.one.service.Configure(ctx, &api.ConfigureRequest{
		Config: c.config, RuntimeName: "podd", RuntimeVersion: c.p.version, NRIVersion: libraryVersion(),
		RegistrationTimeout: c.p.cfg.RegistrationTimeout.Milliseconds(),
		RequestTimeout:      c.p.cfg.RequestTimeout.Milliseconds(),
	})
	if err != nil {
		return fmt.Errorf("configure NRI plugin %s: %w", c.one.name(), err)
	}
	c.one.events = api.EventMask(reply.GetEvents())
	if c.one.events == 0 {
		c.one.events = api.ValidEvents
	}
	if unknown := c.one.events &^ api.ValidEvents; unknown != 0 {
		return fmt.Errorf("%w: NRI plugin %s subscribes to unknown events (0x%x)",
			errdefs.ErrInvalidArgument, c.one.name(), int32(unknown))
	}
	policy := reply.GetFailurePolicy()
	c.one.refuse, c.one.keep = policy.GetFailRequest(), policy.GetKeepConnected()
	switch c.p.cfg.Plugins[c.one.base].OnFailure {
	case refuseOnFailure:
		c.one.refuse, c.one.keep = true, true
	case continueOnFailure:
		c.one.refuse, c.one.keep = false, false
	}
	return nil
}

// RegisterPlugin serves the plugin's first call.
func (c *connection) RegisterPlugin(_ context.Context, r *api.RegisterPluginRequest) (*api.Empty, error) {
	if !c.one.launched {
		if err := errors.Join(api.CheckPluginName(r.GetPluginName()), api.CheckPluginIndex(r.GetPluginIdx())); err != nil {
			return nil, err
		}
		if len(r.GetPluginName()) > maxName {
			return nil, fmt.Errorf("%w: the plugin's name is longer than %d bytes", errdefs.ErrInvalidArgument, maxName)
		}
	}
	select {
	case c.registered <- r:
		return &api.Empty{}, nil
	default:
		return nil, fmt.Errorf("%w: the plugin has registered before", errdefs.ErrAlreadyExists)
	}
}

// maxName bounds the names of plugins, which are in logs and metrics.
const maxName = 64

// UpdateContainers serves a plugin's own updates and evictions, one request after the other. Those of a plugin that has
// not joined yet wait in the queue: a plugin that is configured does not know when podd has read its answer.
func (c *connection) UpdateContainers(
	ctx context.Context, r *api.UpdateContainersRequest,
) (*api.UpdateContainersResponse, error) {
	done := make(chan []*api.ContainerUpdate, 1)
	if !c.one.enqueueUpdate(func() {
		failed, _ := c.p.update(ctx, r.GetUpdate()) // it has logged the errors
		done <- failed
	}) {
		return nil, errClosed
	}
	select {
	case failed := <-done:
		c.p.evict(r.GetEvict())
		return &api.UpdateContainersResponse{Failed: failed}, nil
	case <-c.one.closed:
		return nil, errClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
