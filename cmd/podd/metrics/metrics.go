// Package metrics owns what Prometheus is told of podd itself: how long each stage of each operation takes, how calls
// end, and how many pods, containers, images and problems there are. The CRI's metrics of pods are not here but in
// package server.
//
// It counts and reports, and never changes anything. A metric's labels are from small closed sets; none holds the name
// or id of a pod, a container or an image. Nothing of it exists unless an address is configured. Only the daemon's
// wiring calls it.
package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/server"
)

// buckets are 1 ms, 2 ms ... 32.768 s, and a minute, which is where waiting for a hanging dependency begins.
func buckets() []float64 { return append(prometheus.ExponentialBuckets(0.001, 2, 16), 60) }

// Metrics counts what happens, and asks the node for the rest when somebody wants to know.
type Metrics struct {
	registry   *prometheus.Registry
	operations *prometheus.HistogramVec
	stages     *prometheus.HistogramVec
	calls      *prometheus.HistogramVec
}

// New returns metrics of a podd of that version that have seen nothing yet.
func New(version string) *Metrics {
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets()}, labels)
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		operations: histogram("podd_operation_duration_seconds",
			"Time that operations on pods and containers took, from begin to end.", "operation", "handler", "outcome"),
		stages: histogram("podd_operation_stage_duration_seconds",
			"Time that each stage of an operation took. The outcome is the whole operation's.", "operation", "stage", "handler", "outcome"),
		calls: histogram("podd_rpc_duration_seconds",
			"Time until calls of the CRI were answered, or streams ended.", "method", "code"),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "podd_build_info", Help: "Always 1; the version is a label.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	m.registry.MustRegister(m.operations, m.stages, m.calls, build, // they panic when two have one name
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// ObserveOperation counts an operation that has ended. It is called in the operation's way, and is quick.
func (m *Metrics) ObserveOperation(_ context.Context, o operation.Operation) {
	outcome := string(o.Outcome)
	m.operations.WithLabelValues(o.Verb, o.Handler, outcome).Observe(time.Duration(o.Took).Seconds())
	for _, s := range o.Stages {
		m.stages.WithLabelValues(o.Verb, s.Name, o.Handler, outcome).Observe(time.Duration(s.Took).Seconds())
	}
}

// ObserveCall counts a call that was answered.
func (m *Metrics) ObserveCall(c server.Call) {
	m.calls.WithLabelValues(c.Method, c.Code.String()).Observe(c.Duration.Seconds())
}
