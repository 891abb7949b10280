package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/podd-project/podd/sandbox/nri"
)

// WatchPlugins adds metrics of NRI plugins, which are read at each scrape. Status must not block.
func (m *Metrics) WatchPlugins(status func() nri.Status) {
	label := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	m.registry.MustRegister(&pluginCollector{
		status:    status,
		connected: label("podd_nri_plugins", "NRI plugins that are connected."),
		down:      label("podd_nri_plugins_down", "NRI plugins of plugin_dir that do not run; see podd status."),
		waiting:   label("podd_nri_waiting_calls", "Calls that wait for the NRI plugin.", "plugin"),
		calls: label("podd_nri_calls_total", "Calls of the NRI plugin, by outcome: ok, refused, failed.",
			"plugin", "verb", "outcome"),
		time: label("podd_nri_call_seconds_total", "Time that calls of the NRI plugin took together.", "plugin", "verb"),
	})
}

// pluginCollector implements prometheus.Collector with the status of the plugins.
type pluginCollector struct {
	status                                func() nri.Status
	connected, down, waiting, calls, time *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *pluginCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.connected, c.down, c.waiting, c.calls, c.time} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *pluginCollector) Collect(out chan<- prometheus.Metric) {
	s := c.status()
	send := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
	send(c.connected, prometheus.GaugeValue, float64(len(s.Plugins)))
	send(c.down, prometheus.GaugeValue, float64(len(s.Down)))
	waiting := map[string]int{} // two plugins may have one name
	for _, p := range s.Plugins {
		waiting[p.Name] += p.Waiting
	}
	for name, n := range waiting {
		send(c.waiting, prometheus.GaugeValue, float64(n), name)
	}
	for plugin, verbs := range s.Calls {
		for _, v := range verbs {
			send(c.calls, prometheus.CounterValue, float64(v.Total-v.Refused-v.Failed), plugin, v.Verb, "ok")
			send(c.calls, prometheus.CounterValue, float64(v.Refused), plugin, v.Verb, "refused")
			send(c.calls, prometheus.CounterValue, float64(v.Failed), plugin, v.Verb, "failed")
			send(c.time, prometheus.CounterValue, v.Time.Seconds(), plugin, v.Verb)
		}
	}
}
