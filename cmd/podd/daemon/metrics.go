package daemon

import (
	"context"
	"net"

	"github.com/podd-project/podd/cmd/podd/state"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
)

// serveMetrics serves metrics until ctx ends. The daemon runs even if the endpoint cannot be opened.
func (d *daemon) serveMetrics(ctx context.Context, n *Node) {
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
	*Node
	d *daemon
}

// Pulls returns the number of pulls in progress.
func (n metricsNode) Pulls() int {
	pulls, _ := n.Node.Images.Pulls()
	return len(pulls)
}

func (n metricsNode) PodStates() []record.PodState {
	var states []record.PodState
	for _, p := range n.Engine.Pods() {
		states = append(states, p.Status().State)
	}
	return states
}

func (n metricsNode) ContainerStates() []record.ContainerState {
	var states []record.ContainerState
	for _, c := range n.Engine.Containers() {
		states = append(states, c.Status().State)
	}
	return states
}

func (n metricsNode) Images() int {
	images, err := n.Node.Images.List(context.Background()) // from memory
	if err != nil {
		return 0
	}
	return len(images)
}

func (n metricsNode) Operations() []operation.Operation { return n.Engine.Operations() }
func (n metricsNode) Troubles() []sandbox.Trouble       { return n.Engine.Troubles() }
func (n metricsNode) Handlers() []sandbox.Handler       { return n.Engine.Handlers() }
func (n metricsNode) NetworkReady() error               { return n.Engine.NetworkReady() }
func (n metricsNode) ConfigGeneration() int             { return n.d.current.Load().number }
func (n metricsNode) ConfigReloaded() bool              { return n.d.current.Load().failed == nil }
