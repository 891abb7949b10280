package server

import (
	"context"
	"iter"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/usage"
)

// ListMetricDescriptors names every metric that ListPodSandboxMetrics may have.
func (s *Server) ListMetricDescriptors(context.Context, *cri.ListMetricDescriptorsRequest) (*cri.ListMetricDescriptorsResponse, error) {
	resp := &cri.ListMetricDescriptorsResponse{}
	for _, group := range metricGroups() {
		for _, m := range group.metrics {
			resp.Descriptors = append(resp.Descriptors, &cri.MetricDescriptor{
				Name: m.name, Help: m.help, LabelKeys: append(baseLabels(), m.labels...),
			})
		}
	}
	return resp, nil
}

// ListPodSandboxMetrics tells the metrics of the pods that are ready and of the containers in them that have a process.
func (s *Server) ListPodSandboxMetrics(ctx context.Context, _ *cri.ListPodSandboxMetricsRequest) (*cri.ListPodSandboxMetricsResponse, error) {
	resp := &cri.ListPodSandboxMetricsResponse{}
	for m := range s.podMetrics(ctx) {
		resp.PodMetrics = append(resp.PodMetrics, m)
	}
	return resp, nil
}

// StreamPodSandboxMetrics is ListPodSandboxMetrics without the limit on a message's size (KEP-5825).
func (s *Server) StreamPodSandboxMetrics(_ *cri.StreamPodSandboxMetricsRequest, out grpc.ServerStreamingServer[cri.StreamPodSandboxMetricsResponse]) error {
	return sendBatches(s.podMetrics(out.Context()), func(items []*cri.PodSandboxMetrics) error {
		return out.Send(&cri.StreamPodSandboxMetricsResponse{PodSandboxMetrics: items})
	})
}

// podMetrics measures the ready pods, some at a time.
func (s *Server) podMetrics(ctx context.Context) iter.Seq[*cri.PodSandboxMetrics] {
	return func(yield func(*cri.PodSandboxMetrics) bool) {
		r := s.metricReport(ctx)
		containers := s.containersByPod("")
		for p, u := range s.podUsages(ctx, func(Pod) bool { return true }, usage.Want{Details: true}) {
			if !yield(r.pod(p, u, containers[p.Record.ID])) {
				return
			}
		}
	}
}

// metricReport is what all pods of one answer have in common.
type metricReport struct {
	groups []metricGroup
	images imageFinder
	disk   diskSize
	now    time.Time
}

// diskSize is what containers' root filesystems are kept on.
type diskSize struct {
	// device is a path, "" when the filesystem is on none.
	device                    string
	major, minor              uint64
	bytes, inodes, inodesFree uint64
	at                        time.Time
}

func (s *Server) metricReport(ctx context.Context) metricReport {
	fs, device := s.deps.Engine.Filesystem()
	return metricReport{
		groups: metricGroups(), images: s.imageFinder(ctx), now: time.Now(),
		disk: diskSize{
			device: deviceLabel(device), major: uint64(fs.Major), minor: uint64(fs.Minor),
			bytes: fs.Bytes, inodes: fs.Inodes, inodesFree: fs.InodesFree, at: fs.At,
		},
	}
}

// deviceLabel is a device's path, as cAdvisor tells it.
func deviceLabel(name string) string {
	if name == "" {
		return ""
	}
	return "/dev/" + name
}

// measured is what one pod's or container's metrics are worked out of. What is nil or zero is not known.
type measured struct {
	usage.Container
	// network is there for pods alone, disk for containers alone.
	network *usage.Network
	disk    diskSize
	started time.Time
	now     time.Time
}

func (r metricReport) pod(p Pod, u usage.Pod, containers []Container) *cri.PodSandboxMetrics {
	meta := p.Record.Config.GetMetadata()
	m := measured{network: u.Network, now: r.now}
	if u.Path != "" { // a sum of containers' would be their metrics once more
		m.Sample = u.Sample
		m.started = p.Record.CreatedAt
	}
	out := &cri.PodSandboxMetrics{
		PodSandboxId: p.Record.ID,
		Metrics:      r.metrics(&m, []string{meta.GetName(), meta.GetNamespace(), "", p.Record.ID, "", ""}),
	}
	for _, c := range containers {
		used, ok := u.Containers[c.Record.ID]
		if !ok {
			continue
		}
		m := measured{Container: used, disk: r.disk, started: c.Status.StartedAt, now: r.now}
		image := usedImage(c.Record, r.images.image(c.Record.ImageID)).GetImage()
		labels := []string{meta.GetName(), meta.GetNamespace(), c.Record.Config.GetMetadata().GetName(), c.Record.ID, image, c.Record.ID}
		out.ContainerMetrics = append(out.ContainerMetrics, &cri.ContainerMetrics{ContainerId: c.Record.ID, Metrics: r.metrics(&m, labels)})
	}
	return out
}

// metrics works out every metric that something is known of. The base labels are shared by those that have no others.
func (r metricReport) metrics(m *measured, base []string) []*cri.Metric {
	var out []*cri.Metric
	for _, group := range r.groups {
		at := group.at(m)
		if at.IsZero() {
			continue
		}
		for _, metric := range group.metrics {
			metric.values(m, func(n uint64, labels ...string) {
				all := base
				if len(labels) > 0 {
					all = append(append(make([]string, 0, len(base)+len(labels)), base...), labels...)
				}
				out = append(out, &cri.Metric{
					Name: metric.name, Timestamp: at.UnixNano(), MetricType: metric.kind, LabelValues: all, Value: value(n),
				})
			})
		}
	}
	return out
}
