// Package metrics exports podd's own metrics to Prometheus: durations of operations and their stages, of calls, and the
// number of pods, containers, images and problems. The CRI's metrics of pods are in package server.
//
// It only counts and reports. Label values come from small fixed sets; none is the name or id of a pod, container or
// image. It is unused unless an address is configured. Only the daemon's wiring calls it.
package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/server"
)

// buckets returns 1 ms, 2 ms ... 32.768 s, and 60 s, beyond which a dependency probably hangs.
func buckets() []float64 { return append(prometheus.ExponentialBuckets(0.001, 2, 16), 60) }

// Metrics counts operations and calls, and reads the rest from the node at each scrape.
type Metrics struct {
	registry   *prometheus.Registry
	operations *prometheus.HistogramVec
	stages     *prometheus.HistogramVec
	calls      *prometheus.HistogramVec
	exits      *prometheus.CounterVec
}

// New returns empty metrics. Version is the label of podd_build_info.
func New(version string) *Metrics {
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets()}, labels)
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		operations: histogram("podd_operation_duration_seconds",
			"Duration of operations on pods and containers.", "operation", "handler", "outcome"),
		stages: histogram("podd_operation_stage_duration_seconds",
			"Duration of each stage of an operation. The outcome is that of the whole operation.",
			"operation", "stage", "handler", "outcome"),
		calls: histogram("podd_rpc_duration_seconds",
			"Duration of CRI calls and streams.", "method", "code"),
		exits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "podd_container_exits_total", Help: "Containers that exited, by the reason in their status.",
		}, []string{"reason"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "podd_build_info", Help: "Always 1; the version is a label.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	for _, reason := range []string{"Completed", "Error", "OOMKilled", "StartError", "Unknown"} {
		m.exits.WithLabelValues(reason) // so that the first exit is an increase
	}
	m.registry.MustRegister(m.operations, m.stages, m.calls, m.exits, build, // panics on duplicate names
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// ObserveOperation counts a finished operation. It does not block.
func (m *Metrics) ObserveOperation(_ context.Context, o operation.Operation) {
	outcome := string(o.Outcome)
	m.operations.WithLabelValues(o.Verb, o.Handler, outcome).Observe(time.Duration(o.Took).Seconds())
	for _, s := range o.Stages {
		m.stages.WithLabelValues(o.Verb, s.Name, o.Handler, outcome).Observe(time.Duration(s.Took).Seconds())
	}
}

// ObserveCall counts a finished call.
func (m *Metrics) ObserveCall(c server.Call) {
	m.calls.WithLabelValues(c.Method, c.Code.String()).Observe(c.Duration.Seconds())
}

// ObserveExit counts the exit of a container, by the reason of its status: Completed, Error, OOMKilled, StartError or
// Unknown.
func (m *Metrics) ObserveExit(reason string) { m.exits.WithLabelValues(reason).Inc() }
