package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/budget"
	"github.com/podd-project/podd/sandbox/garbage"
	"github.com/podd-project/podd/sandbox/nri"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/streaming"
)

// Node is the state of the node at one scrape.
type Node struct {
	admin.Status
	// Images is the number of stored images.
	Images   int
	Handlers []sandbox.Handler
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
	podStates = []string{
		string(record.PodCreating), string(record.PodReady), string(record.PodStopping), string(record.PodNotReady),
	}
	containerStates = []string{
		string(record.ContainerCreating), string(record.ContainerCreated), string(record.ContainerRunning),
		string(record.ContainerExited),
	}
)

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	n := c()
	gauge := sender(out, prometheus.GaugeValue)
	n.collectPods(gauge)
	gauge("podd_images", "Images in the store.", float64(n.Images), nil)
	gauge("podd_image_pulls_in_progress", "Images being pulled.", float64(len(n.Pulls)), nil)
	gauge.each("podd_operations_in_progress", "Operations in progress.", "operation",
		count(n.Operations, func(o operation.Operation) string { return o.Verb }))
	gauge.each("podd_sessions", "Streaming sessions in progress.", "kind",
		count(n.Sessions, func(s streaming.SessionInfo) string { return s.Kind }, "attach", "exec", "portforward"))
	gauge.each("podd_problems", "Problems that podd status prints, by kind.", "kind",
		count(n.Problems, func(p admin.Problem) string { return p.Kind }, admin.Kinds...))
	n.collectTroubles(gauge)
	for _, c := range n.Conditions {
		if c.Type == cri.NetworkReady {
			gauge("podd_network_ready", "1 if the pod network is ready.", yes(c.Ready), nil)
		}
	}
	for _, h := range n.Handlers {
		gauge("podd_runtime_handler_ready", "1 if the runtime handler is ready.", yes(h.Err == nil),
			labels{"handler": h.Name})
	}
	gauge("podd_config_generation", "Number of the configuration in force; 1 at the start.",
		float64(n.Configuration.Generation), nil)
	gauge("podd_config_last_reload_successful", "0 if the last reload of the configuration was refused.",
		yes(n.Configuration.Error == ""), nil)
	gauge("podd_filesystem_free_bytes", "Free bytes of the disk with images and containers.", float64(n.Disk.Free), nil)
	gauge("podd_filesystem_size_bytes", "Size of the disk with images and containers.", float64(n.Disk.Size), nil)
	collectBudgets(gauge, sender(out, prometheus.CounterValue), n.Budgets)
	collectPlugins(gauge, sender(out, prometheus.CounterValue), n.NRI)
	for outcome, spans := range n.Spans {
		sender(out, prometheus.CounterValue)("podd_tracing_spans_total",
			"Spans that were to be sent, by outcome: sent, dropped, failed, rejected.", float64(spans),
			labels{"outcome": outcome})
	}
}

// collectPods counts pods, also those that are being created, and containers by state.
func (n Node) collectPods(gauge send) {
	var containers []admin.Container
	for _, p := range n.Pods {
		containers = append(containers, p.Containers...)
	}
	gauge.each("podd_pods", "Pods by state.", "state",
		count(n.Pods, func(p admin.Pod) string { return p.State }, podStates...))
	gauge.each("podd_containers", "Containers by state.", "state",
		count(containers, func(c admin.Container) string { return c.State }, containerStates...))
}

func (n Node) collectTroubles(gauge send) {
	troubles := count(n.Troubles, func(t sandbox.Trouble) string { return string(t.Kind) })
	gauge("podd_pending_cleanups", "Resources that could not be freed yet; see podd status.",
		float64(troubles[string(garbage.Cleanup)]), nil)
	gauge("podd_unread_records", "Records that cannot be read; see podd status.",
		float64(troubles[string(garbage.Unread)]), nil)
	gauge("podd_quarantined_records", "Damaged records in the directory quarantine.",
		float64(troubles[string(garbage.Quarantined)]), nil)
}

func collectBudgets(gauge, counter send, budgets []budget.Usage) {
	for _, b := range budgets {
		of := labels{"budget": b.Name}
		gauge("podd_budget_in_use", "Part of the budget that is in use, in its unit.", float64(b.InUse), of)
		gauge("podd_budget_limit", "Limit of the budget, in its unit.", float64(b.Limit), of)
		counter("podd_budget_refused_total", "Requests that the budget refused.", float64(b.Refused), of)
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

// count returns how many of list have each label, and 0 for known labels that none has.
func count[T any](list []T, label func(T) string, known ...string) map[string]int {
	n := map[string]int{}
	for _, of := range known {
		n[of] = 0
	}
	for _, one := range list {
		n[label(one)]++
	}
	return n
}

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
