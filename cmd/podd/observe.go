package main

import (
	"context"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"

	"github.com/podd-project/podd/cmd/podd/history"
	"github.com/podd-project/podd/cmd/podd/metrics"
	"github.com/podd-project/podd/cmd/podd/state"
	"github.com/podd-project/podd/cmd/podd/tracing"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/server"
)

// observers receive operations and calls. Those that are not configured are nil.
type observers struct {
	metrics *metrics.Metrics
	tracer  *tracing.Tracer
	history *history.History
}

// flushSpansTimeout is how long a stopping daemon tries to send its last spans.
const flushSpansTimeout = 3 * time.Second

// newObservers makes those that are configured. podd runs without one that cannot be made.
func (d *daemon) newObservers() (o observers) {
	o.history = d.openHistory()
	if d.cfg.Metrics.Enabled() {
		o.metrics = metrics.New(d.version)
	}
	if !d.cfg.Tracing.Enabled(os.Getenv) {
		return o
	}
	var err error
	if o.tracer, err = tracing.New(d.cfg.Tracing, d.version, d.log); err != nil { // must not keep pods from starting
		d.log.WithError(err).Error("failed to set up tracing: no spans are sent")
		return o
	}
	d.onClose("tracing", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), flushSpansTimeout)
		defer cancel()
		return o.tracer.Shutdown(ctx)
	})
	return o
}

// openHistory returns nil if the history cannot be written: pods run without it.
func (d *daemon) openHistory() *history.History {
	h, err := history.Open(history.Dir(d.cfg.Root), d.log)
	if err != nil {
		d.log.WithError(err).Error("failed to open the history: operations are not recorded")
		return nil
	}
	d.onClose("history", h.Close)
	return h
}

// operation returns the function that the engine calls for each finished operation, nil without observers.
func (o observers) operation() func(context.Context, operation.Operation) {
	var all []func(context.Context, operation.Operation)
	if o.metrics != nil {
		all = append(all, o.metrics.ObserveOperation)
	}
	if o.tracer != nil {
		all = append(all, o.tracer.ObserveOperation)
	}
	if o.history != nil {
		all = append(all, o.history.Add)
	}
	if all == nil {
		return nil
	}
	return func(ctx context.Context, op operation.Operation) {
		for _, observe := range all {
			observe(ctx, op)
		}
	}
}

// grpcOptions returns the observers' options of the gRPC server, which must come before the server's own.
func (o observers) grpcOptions() []grpc.ServerOption {
	if o.tracer == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(o.tracer.Unary)}
}

// call returns the function that the server calls for each finished call, nil without metrics.
func (o observers) call() func(server.Call) {
	if o.metrics == nil {
		return nil
	}
	return o.metrics.ObserveCall
}

// serveMetrics serves metrics until ctx ends. The daemon runs even if the endpoint cannot be opened.
func (d *daemon) serveMetrics(ctx context.Context, n *node) {
	m := d.observers.metrics
	if m == nil {
		return
	}
	m.Watch(metricsNode{n, d})
	m.WatchPlugins(n.plugins.Status)
	if t := d.observers.tracer; t != nil {
		m.WatchSpans(t.Spans)
	}
	log := d.log.WithField("address", d.cfg.Metrics.Address)
	l, err := d.listenMetrics()
	if err != nil {
		log.WithError(err).Error("failed to serve metrics")
		return
	}
	log.Info("serving metrics")
	d.background.Go(func() {
		if err := m.Serve(ctx, l, d.log); err != nil {
			log.WithError(err).Error("failed to serve metrics, giving up")
		}
	})
}

func (d *daemon) listenMetrics() (net.Listener, error) {
	if path := d.cfg.Metrics.SocketPath(); path != "" {
		return state.Listen(path, state.SocketMode, d.log)
	}
	return net.Listen("tcp", d.cfg.Metrics.Address)
}

// metricsNode implements metrics.Node.
type metricsNode struct {
	*node
	d *daemon
}

func (n metricsNode) PodStates() []record.PodState {
	var states []record.PodState
	for _, p := range n.engine.Pods() {
		states = append(states, p.Status().State)
	}
	return states
}

func (n metricsNode) ContainerStates() []record.ContainerState {
	var states []record.ContainerState
	for _, c := range n.engine.Containers() {
		states = append(states, c.Status().State)
	}
	return states
}

func (n metricsNode) Images() int {
	images, err := n.images.List(context.Background()) // from memory
	if err != nil {
		return 0
	}
	return len(images)
}

func (n metricsNode) Pulls() int                        { return len(n.images.Pulls()) }
func (n metricsNode) Operations() []operation.Operation { return n.engine.Operations() }
func (n metricsNode) Troubles() []sandbox.Trouble       { return n.engine.Troubles() }
func (n metricsNode) Handlers() []sandbox.Handler       { return n.engine.Handlers() }
func (n metricsNode) NetworkReady() error               { return n.engine.NetworkReady() }
func (n metricsNode) ConfigGeneration() int             { return n.d.current.Load().number }
func (n metricsNode) ConfigReloaded() bool              { return n.d.current.Load().failed == nil }
