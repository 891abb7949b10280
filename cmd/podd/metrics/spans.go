package metrics

import "github.com/prometheus/client_golang/prometheus"

// WatchSpans adds a metric of the spans of podd's tracing, which is read at each scrape. Spans returns their number by
// outcome, and must not block.
func (m *Metrics) WatchSpans(spans func() map[string]uint64) {
	m.registry.MustRegister(&spanCollector{spans: spans, total: prometheus.NewDesc("podd_tracing_spans_total",
		"Spans that were to be sent, by outcome: sent, dropped, failed, rejected.", []string{"outcome"}, nil)})
}

// spanCollector implements prometheus.Collector.
type spanCollector struct {
	spans func() map[string]uint64
	total *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *spanCollector) Describe(out chan<- *prometheus.Desc) { out <- c.total }

// Collect implements prometheus.Collector.
func (c *spanCollector) Collect(out chan<- prometheus.Metric) {
	for outcome, n := range c.spans() {
		out <- prometheus.MustNewConstMetric(c.total, prometheus.CounterValue, float64(n), outcome)
	}
}
