package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/garbage"
	"github.com/podd-project/podd/sandbox/nri"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
)

// Node is the state of the node at one scrape.
type Node struct {
	Pods       []record.PodState
	Containers []record.ContainerState
	// Images is the number of stored images, Pulls the number of images being pulled.
	Images, Pulls int
	Operations    []operation.Operation
	// Problems are the numbers of problems by kind.
	Problems     map[string]int
	Troubles     []sandbox.Trouble
	Handlers     []sandbox.Handler
	NetworkReady bool
	// ConfigGeneration is the number of the configuration in force, ConfigReloaded whether the last reload succeeded;
	// true if there was none.
	ConfigGeneration int
	ConfigReloaded   bool
	Plugins          nri.Status
	// Spans are the spans of podd's tracing by outcome, nil without tracing.
	Spans map[string]uint64
}

// Watch adds the metrics of what read returns, which is called at each scrape and must not block.
func (m *Metrics) Watch(read func() Node) { m.registry.MustRegister(collector(read)) }

// collector implements prometheus.Collector.
type collector func() Node

// Describe implements prometheus.Collector. It sends nothing, so the registry does not compare the metrics with it.
func (collector) Describe(chan<- *prometheus.Desc) {}

// The states that are reported even if their count is 0.
var (
	podStates       = []record.PodState{record.PodCreating, record.PodReady, record.PodStopping, record.PodNotReady}
	containerStates = []record.ContainerState{
		record.ContainerCreating, record.ContainerCreated, record.ContainerRunning, record.ContainerExited,
	}
)

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	n := c()
	gauge := sender(out, prometheus.GaugeValue)
	gauge.each("podd_pods", "Pods by state.", "state", count(n.Pods, podStates...))
	gauge.each("podd_containers", "Containers by state.", "state", count(n.Containers, containerStates...))
	gauge("podd_images", "Images in the store.", float64(n.Images), nil)
	gauge("podd_image_pulls_in_progress", "Images being pulled.", float64(n.Pulls), nil)
	var verbs []string
	for _, o := range n.Operations {
		verbs = append(verbs, o.Verb)
	}
	gauge.each("podd_operations_in_progress", "Operations in progress.", "operation", count(verbs))
	gauge.each("podd_problems", "Problems that podd status prints, by kind.", "kind", n.Problems)
	troubles := map[garbage.TroubleKind]int{}
	for _, t := range n.Troubles {
		troubles[t.Kind]++
	}
	gauge("podd_pending_cleanups", "Resources that could not be freed yet; see podd status.",
		float64(troubles[garbage.Cleanup]), nil)
	gauge("podd_unread_records", "Records that cannot be read; see podd status.", float64(troubles[garbage.Unread]), nil)
	gauge("podd_quarantined_records", "Damaged records in the directory quarantine.",
		float64(troubles[garbage.Quarantined]), nil)
	for _, h := range n.Handlers {
		gauge("podd_runtime_handler_ready", "1 if the runtime handler is ready.", yes(h.Err == nil),
			labels{"handler": h.Name})
	}
	gauge("podd_network_ready", "1 if the pod network is ready.", yes(n.NetworkReady), nil)
	gauge("podd_config_generation", "Number of the configuration in force; 1 at the start.",
		float64(n.ConfigGeneration), nil)
	gauge("podd_config_last_reload_successful", "0 if the last reload of the configuration was refused.",
		yes(n.ConfigReloaded), nil)
	collectPlugins(gauge, sender(out, prometheus.CounterValue), n.Plugins)
	for outcome, spans := range n.Spans {
		sender(out, prometheus.CounterValue)("podd_tracing_spans_total",
			"Spans that were to be sent, by outcome: sent, dropped, failed, rejected.", float64(spans),
			labels{"outcome": outcome})
	}
}

func collectPlugins(gauge, counter send, s nri.Status) {
	gauge("podd_nri_plugins", "NRI plugins that are connected.", float64(len(s.Plugins)), nil)
	gauge("podd_nri_plugins_down", "NRI plugins of plugin_dir that do not run; see podd status.",
		float64(len(s.Down)), nil)
	waiting := map[string]int{} // two plugins may have one name
	for _, p := range s.Plugins {
		waiting[p.Name] += p.Waiting
	}
	gauge.each("podd_nri_waiting_calls", "Calls that wait for the NRI plugin.", "plugin", waiting)
	for plugin, verbs := range s.Calls {
		for _, v := range verbs {
			for outcome, n := range map[string]uint64{
				"ok": v.Total - v.Refused - v.Failed, "refused": v.Refused, "failed": v.Failed,
			} {
				counter("podd_nri_calls_total", "Calls of the NRI plugin, by outcome: ok, refused, failed.", float64(n),
					labels{"plugin": plugin, "verb": v.Verb, "outcome": outcome})
			}
			counter("podd_nri_call_seconds_total", "Time that calls of the NRI plugin took together.", v.Time.Seconds(),
				labels{"plugin": plugin, "verb": v.Verb})
		}
	}
}

type labels = prometheus.Labels

// send sends one value.
type send func(name, help string, value float64, of labels)

func sender(out chan<- prometheus.Metric, kind prometheus.ValueType) send {
	return func(name, help string, value float64, of labels) {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, of), kind, value)
	}
}

// each sends the value of each label.
func (s send) each(name, help, label string, values map[string]int) {
	for of, n := range values {
		s(name, help, float64(n), labels{label: of})
	}
}

// count returns how often each value occurs in list, and 0 for known values that do not.
func count[S ~string](list []S, known ...S) map[string]int {
	n := map[string]int{}
	for _, v := range known {
		n[string(v)] = 0
	}
	for _, v := range list {
		n[string(v)]++
	}
	return n
}

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
