package daemon

import (
	"context"
	"net"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/cmd/podd/metrics"
	"github.com/podd-project/podd/cmd/podd/state"
)

// serveMetrics serves metrics until ctx ends. The daemon runs even if the endpoint cannot be opened.
func (d *daemon) serveMetrics(ctx context.Context, n *Node) {
	m := d.observers.metrics
	if m == nil {
		return
	}
	m.Watch(func() metrics.Node { return d.metricsOf(n) })
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

// metricsOf returns the state of the node, from memory.
func (d *daemon) metricsOf(n *Node) metrics.Node {
	g := d.current.Load()
	m := metrics.Node{
		Operations: n.Engine.Operations(), Troubles: n.Engine.Troubles(), Handlers: n.Engine.Handlers(),
		NetworkReady: n.Engine.NetworkReady() == nil, ConfigGeneration: g.number, ConfigReloaded: g.failed == nil,
		Plugins: n.plugins.Status(), Problems: map[string]int{},
	}
	for _, kind := range admin.Kinds {
		m.Problems[kind] = 0
	}
	s, _ := adminNode{Engine: n.Engine, d: d, n: n}.Status(context.Background(), "") // from memory
	for _, p := range s.Problems {
		m.Problems[p.Kind]++
	}
	for _, p := range allPods(n.Engine) {
		m.Pods = append(m.Pods, p.Status().State)
	}
	for _, c := range n.Engine.Containers() {
		m.Containers = append(m.Containers, c.Status().State)
	}
	pulls, _ := n.Images.Pulls()
	m.Pulls = len(pulls)
	if images, err := n.Images.List(context.Background()); err == nil {
		m.Images = len(images)
	}
	if t := d.observers.tracer; t != nil {
		m.Spans = t.Spans()
	}
	return m
}
