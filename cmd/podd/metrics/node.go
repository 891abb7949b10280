package metrics

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/garbage"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
)

// Node provides the values of gauges. Its methods do not block.
type Node interface {
	PodStates() []record.PodState
	ContainerStates() []record.ContainerState
	// Images returns the number of stored images, Pulls the number of images being pulled.
	Images() int
	Pulls() int
	Operations() []operation.Operation
	Troubles() []sandbox.Trouble
	Handlers() []sandbox.Handler
	NetworkReady() error
	// ConfigGeneration returns the number of the configuration in force, ConfigReloaded whether the last reload
	// succeeded; true if there was none.
	ConfigGeneration() int
	ConfigReloaded() bool
}

// Watch adds gauges that are read from node at each scrape.
func (m *Metrics) Watch(node Node) { m.registry.MustRegister(newCollector(node)) }

// collector implements prometheus.Collector with a Node.
type collector struct {
	node                                   Node
	pods, containers, images, pulls        *prometheus.Desc
	underWay, pending, unread, quarantined *prometheus.Desc
	handlerReady, networkReady             *prometheus.Desc
	generation, reloaded                   *prometheus.Desc
}

func newCollector(node Node) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &collector{
		node:         node,
		pods:         desc("podd_pods", "Pods by state.", "state"),
		containers:   desc("podd_containers", "Containers by state.", "state"),
		images:       desc("podd_images", "Images in the store."),
		pulls:        desc("podd_image_pulls_in_progress", "Images being pulled."),
		underWay:     desc("podd_operations_in_progress", "Operations in progress.", "operation"),
		pending:      desc("podd_pending_cleanups", "Resources that could not be freed yet; see podd status."),
		unread:       desc("podd_unread_records", "Records that cannot be read; see podd status."),
		quarantined:  desc("podd_quarantined_records", "Damaged records in the directory quarantine."),
		handlerReady: desc("podd_runtime_handler_ready", "1 if the runtime handler is ready.", "handler"),
		networkReady: desc("podd_network_ready", "1 if the pod network is ready."),
		generation:   desc("podd_config_generation", "Number of the configuration in force; 1 at the start."),
		reloaded:     desc("podd_config_last_reload_successful", "0 if the last reload of the configuration was refused."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.pods, c.containers, c.images, c.pulls, c.underWay, c.pending, c.unread, c.quarantined,
		c.handlerReady, c.networkReady, c.generation, c.reloaded,
	} {
		out <- d
	}
}

// The states that are reported even if their count is 0.
var (
	podStates       = []record.PodState{record.PodCreating, record.PodReady, record.PodStopping, record.PodNotReady}
	containerStates = []record.ContainerState{
		record.ContainerCreating, record.ContainerCreated, record.ContainerRunning, record.ContainerExited,
	}
)

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	count(gauge, c.pods, podStates, c.node.PodStates())
	count(gauge, c.containers, containerStates, c.node.ContainerStates())
	gauge(c.images, float64(c.node.Images()))
	gauge(c.pulls, float64(c.node.Pulls()))
	var verbs []string
	for _, o := range c.node.Operations() {
		verbs = append(verbs, o.Verb)
	}
	count(gauge, c.underWay, nil, verbs)
	troubles := map[garbage.TroubleKind]int{}
	for _, t := range c.node.Troubles() {
		troubles[t.Kind]++
	}
	gauge(c.pending, float64(troubles[garbage.Cleanup]))
	gauge(c.unread, float64(troubles[garbage.Unread]))
	gauge(c.quarantined, float64(troubles[garbage.Quarantined]))
	for _, h := range c.node.Handlers() {
		gauge(c.handlerReady, yes(h.Err == nil), h.Name)
	}
	gauge(c.networkReady, yes(c.node.NetworkReady() == nil))
	gauge(c.generation, float64(c.node.ConfigGeneration()))
	gauge(c.reloaded, yes(c.node.ConfigReloaded()))
}

// count reports how often each value occurs in list, and 0 for known values that do not.
func count[S ~string](gauge func(*prometheus.Desc, float64, ...string), d *prometheus.Desc, known, list []S) {
	n := map[string]int{}
	for _, v := range known {
		n[string(v)] = 0
	}
	for _, v := range list {
		n[string(v)]++
	}
	for _, v := range slices.Sorted(maps.Keys(n)) {
		gauge(d, float64(n[v]), v)
	}
}

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
