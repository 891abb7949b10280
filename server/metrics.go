package server

import (
	"context"
	"iter"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/sandbox/usage"
)

// ListMetricDescriptors returns all metrics that ListPodSandboxMetrics may have.
func (s *Server) ListMetricDescriptors(
	context.Context, *cri.ListMetricDescriptorsRequest,
) (*cri.ListMetricDescriptorsResponse, error) {
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

// ListPodSandboxMetrics returns the metrics of the ready pods and of their containers that have a process.
func (s *Server) ListPodSandboxMetrics(
	ctx context.Context, _ *cri.ListPodSandboxMetricsRequest,
) (*cri.ListPodSandboxMetricsResponse, error) {
	resp := &cri.ListPodSandboxMetricsResponse{}
	for m := range s.podMetrics(ctx) {
		resp.PodMetrics = append(resp.PodMetrics, m)
	}
	return resp, nil
}

// StreamPodSandboxMetrics is ListPodSandboxMetrics without the limit on a message's size (KEP-5825).
func (s *Server) StreamPodSandboxMetrics(
	_ *cri.StreamPodSandboxMetricsRequest, out grpc.ServerStreamingServer[cri.StreamPodSandboxMetricsResponse],
) error {
	return sendBatches(s.podMetrics(out.Context()), func(items []*cri.PodSandboxMetrics) error {
		return out.Send(&cri.StreamPodSandboxMetricsResponse{PodSandboxMetrics: items})
	})
}

// podMetrics measures the ready pods.
func (s *Server) podMetrics(ctx context.Context) iter.Seq[*cri.PodSandboxMetrics] {
	return func(yield func(*cri.PodSandboxMetrics) bool) {
		r := s.metricReport(ctx)
		containers := s.containersByPod("")
		for p, u := range s.podUsages(ctx, func(record.PodView) bool { return true }, usage.Want{Details: true}) {
			if !yield(r.pod(p, u, containers[p.ID])) {
				return
			}
		}
	}
}

// metricReport is common to all pods of one response.
type metricReport struct {
	groups []metricGroup
	images imageFinder
	disk   diskSize
	now    time.Time
}

// diskSize describes the filesystem of containers' root filesystems.
type diskSize struct {
	// device is its path, "" if the filesystem has none.
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

// deviceLabel returns a device's path, as in cAdvisor.
func deviceLabel(name string) string {
	if name == "" {
		return ""
	}
	return "/dev/" + name
}

// measured has the measurements of one pod or container. Nil and zero fields are unknown.
type measured struct {
	usage.Container
	// network is set for pods, disk for containers.
	network *usage.Network
	disk    diskSize
	started time.Time
	now     time.Time
}

func (r metricReport) pod(p record.PodView, u usage.Pod, containers []record.ContainerView) *cri.PodSandboxMetrics {
	meta := p.Config.GetMetadata()
	m := measured{network: u.Network, now: r.now}
	if u.Path != "" { // otherwise u is the sum of the containers, whose metrics follow
		m.Sample = u.Sample
		m.started = p.CreatedAt
	}
	out := &cri.PodSandboxMetrics{
		PodSandboxId: p.ID,
		Metrics:      r.metrics(&m, []string{meta.GetName(), meta.GetNamespace(), "", p.ID, "", ""}),
	}
	for _, c := range containers {
		used, ok := u.Containers[c.ID]
		if !ok {
			continue
		}
		m := measured{Container: used, disk: r.disk, started: c.Status.StartedAt, now: r.now}
		image := usedImage(c.Container, r.images.image(c.ImageID)).GetImage()
		labels := []string{
			meta.GetName(), meta.GetNamespace(), c.Config.GetMetadata().GetName(), c.ID, image,
			c.ID,
		}
		out.ContainerMetrics = append(out.ContainerMetrics, &cri.ContainerMetrics{
			ContainerId: c.ID, Metrics: r.metrics(&m, labels),
		})
	}
	return out
}

// metrics returns all metrics whose value is known. Metrics without labels of their own share base.
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
