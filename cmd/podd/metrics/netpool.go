package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/podd-project/podd/sandbox/netpool"
)

// WatchNetworkPool adds metrics of the pod networks that are made in advance, which are read at each scrape. Status
// must not block.
func (m *Metrics) WatchNetworkPool(status func() netpool.Status) {
	gauge := func(name, help string, value func(netpool.Status) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(value(status())) })
	}
	counter := func(name, help string, value func(netpool.Status) uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return float64(value(status())) })
	}
	m.registry.MustRegister(
		gauge("podd_network_pool_size", "Pod networks to keep ready, see network.pool_size.",
			func(s netpool.Status) int { return s.Size }),
		gauge("podd_network_pool_ready", "Pod networks that are ready.", func(s netpool.Status) int { return s.Ready }),
		counter("podd_network_pool_taken_total", "Pods that took a network made in advance.",
			func(s netpool.Status) uint64 { return s.Taken }),
		counter("podd_network_pool_missed_total", "Pods that could have taken one and found none.",
			func(s netpool.Status) uint64 { return s.Missed }))
}
