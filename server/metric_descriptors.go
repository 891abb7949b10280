package server

import (
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The tables of metrics have each metric's descriptor and its values, so that the two cannot differ. Names, labels and
// meaning are those of cAdvisor, which these metrics replace (KEP-2371). Values in CRI are integers, so times are in
// whole seconds.

// metric is one row of a table.
type metric struct {
	name string
	kind cri.MetricType
	// labels are those beyond baseLabels.
	labels []string
	// values calls add once for each combination of labels, and not at all when the value is unknown.
	values func(m *measured, add func(n uint64, labels ...string))
	help   string
}

// metricGroup holds the metrics of one source.
type metricGroup struct {
	// at returns when the source was measured, zero if it was not.
	at      func(m *measured) time.Time
	metrics []metric
}

const (
	counter = cri.MetricType_COUNTER
	gauge   = cri.MetricType_GAUGE
)

// baseLabels returns the labels of every metric. pod, namespace and container are names. id is the id of the container
// or pod sandbox; in cAdvisor it is the path of the cgroup, which would make up most of a response. name is the
// container's id, as in cAdvisor. container, image and name are empty for a pod.
func baseLabels() []string {
	return []string{"pod", "namespace", "container", "id", "image", "name"}
}

func metricGroups() []metricGroup {
	return []metricGroup{
		{func(m *measured) time.Time { return m.now }, generalMetrics()},
		{atUsage, cpuMetrics()},
		{atUsage, memoryMetrics()},
		{atUsage, pressureMetrics()},
		{atUsage, taskMetrics()},
		{atDetails, eventMetrics()},
		{atDetails, specMetrics()},
		{atDetails, hugepageMetrics()},
		{atDetails, fileMetrics()},
		{atDetails, ioMetrics()},
		{atDisk, diskMetrics()},
		{atNetwork, networkMetrics()},
	}
}

func atUsage(m *measured) time.Time {
	if m.Usage == nil {
		return time.Time{}
	}
	return m.Usage.At
}

func atDetails(m *measured) time.Time {
	if m.Details == nil {
		return time.Time{}
	}
	return m.Details.At
}

func atDisk(m *measured) time.Time { return m.disk.at }

func atNetwork(m *measured) time.Time {
	if m.network == nil {
		return time.Time{}
	}
	return m.network.At
}

type add = func(n uint64, labels ...string)

func wholeSeconds(d time.Duration) uint64 { return uint64(d / time.Second) }

func generalMetrics() []metric {
	return []metric{
		{"container_last_seen", gauge, nil, func(m *measured, add add) { add(uint64(m.now.Unix())) },
			"Last time a container was seen, in seconds since the Unix epoch."},
		{"container_start_time_seconds", gauge, nil, func(m *measured, add add) {
			if !m.started.IsZero() {
				add(uint64(m.started.Unix()))
			}
		}, "Start time of the container in seconds since the Unix epoch."},
	}
}
