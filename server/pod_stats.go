package server

import (
	"context"
	"iter"
	"slices"
	"strings"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/sandbox/usage"
)

// PodSandboxStats measures one pod. For a pod that is not ready it returns only the attributes.
func (s *Server) PodSandboxStats(
	ctx context.Context, r *cri.PodSandboxStatsRequest,
) (*cri.PodSandboxStatsResponse, error) {
	if err := checkPodID(r.GetPodSandboxId()); err != nil {
		return nil, err
	}
	p, err := s.deps.Engine.Pod(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	u := s.deps.Engine.PodUsage(ctx, []string{p.ID}, usage.Want{})[p.ID]
	return &cri.PodSandboxStatsResponse{Stats: s.podStatsOf(p, u, s.containersByPod(p.ID))}, nil
}

// ListPodSandboxStats measures the pods that are ready.
func (s *Server) ListPodSandboxStats(
	ctx context.Context, r *cri.ListPodSandboxStatsRequest,
) (*cri.ListPodSandboxStatsResponse, error) {
	if err := checkPodStatsFilter(r.GetFilter()); err != nil {
		return nil, err
	}
	return &cri.ListPodSandboxStatsResponse{Stats: slices.Collect(s.podStats(ctx, r.GetFilter()))}, nil
}

// StreamPodSandboxStats is ListPodSandboxStats without the limit on a message's size (KEP-5825).
func (s *Server) StreamPodSandboxStats(
	r *cri.StreamPodSandboxStatsRequest, out grpc.ServerStreamingServer[cri.StreamPodSandboxStatsResponse],
) error {
	if err := checkPodStatsFilter(r.GetFilter()); err != nil {
		return err
	}
	return sendBatches(s.podStats(out.Context(), r.GetFilter()), func(items []*cri.PodSandboxStats) error {
		return out.Send(&cri.StreamPodSandboxStatsResponse{PodSandboxStats: items})
	})
}

func checkPodStatsFilter(f *cri.PodSandboxStatsFilter) error {
	c := newCheck()
	c.filterID("filter.id", f.GetId())
	c.labels("filter.label_selector", f.GetLabelSelector())
	return c.err()
}

// podStats measures the ready pods that match the filter.
func (s *Server) podStats(ctx context.Context, f *cri.PodSandboxStatsFilter) iter.Seq[*cri.PodSandboxStats] {
	return func(yield func(*cri.PodSandboxStats) bool) {
		match := func(p record.PodView) bool {
			return strings.HasPrefix(p.ID, f.GetId()) && matchLabels(f.GetLabelSelector(), p.Config.GetLabels())
		}
		containers := s.containersByPod(f.GetId())
		for p, u := range s.podUsages(ctx, match, usage.Want{}) {
			if !yield(s.podStatsOf(p, u, containers)) {
				return
			}
		}
	}
}

// podUsages measures the ready pods that match.
func (s *Server) podUsages(
	ctx context.Context, match func(record.PodView) bool, want usage.Want,
) iter.Seq2[record.PodView, usage.Pod] {
	var pods []record.PodView
	for p := range s.deps.Engine.Pods() {
		if p.Status.State == record.PodReady && match(p) {
			pods = append(pods, p)
		}
	}
	return measureAll(pods, func(p record.PodView) string { return p.ID }, func(ids []string) map[string]usage.Pod {
		return s.deps.Engine.PodUsage(ctx, ids, want)
	})
}

// usageChunk is how many containers or pods are measured before the first of them is sent, when they are streamed.
const usageChunk = 64

// measureAll measures items in chunks and yields each that could be measured with its usage.
func measureAll[T, U any](
	items []T, id func(T) string, measure func(ids []string) map[string]U,
) iter.Seq2[T, U] {
	return func(yield func(T, U) bool) {
		for chunk := range slices.Chunk(items, usageChunk) {
			ids := make([]string, len(chunk))
			for i, item := range chunk {
				ids[i] = id(item)
			}
			usages := measure(ids)
			for i, item := range chunk {
				if u, ok := usages[ids[i]]; ok && !yield(item, u) {
					return
				}
			}
		}
	}
}

// containersByPod returns the containers with a process by pod id, for the pods whose id begins with prefix.
func (s *Server) containersByPod(prefix string) map[string][]record.ContainerView {
	out := map[string][]record.ContainerView{}
	for c := range s.deps.Engine.Containers() {
		if hasProcess(c) && strings.HasPrefix(c.PodID, prefix) {
			out[c.PodID] = append(out[c.PodID], c)
		}
	}
	return out
}

func (s *Server) podStatsOf(
	p record.PodView, u usage.Pod, containers map[string][]record.ContainerView,
) *cri.PodSandboxStats {
	cfg := p.Config
	linux := &cri.LinuxPodSandboxStats{
		Cpu: cpuUsage(u.Sample), Memory: memoryUsage(u.Usage), Io: ioUsage(u.Usage),
		Network: networkUsage(u.Network), Process: processUsage(u.Sample),
	}
	for _, c := range containers[p.ID] {
		if used, ok := u.Containers[c.ID]; ok {
			linux.Containers = append(linux.Containers, containerStats(c.Container, used))
		}
	}
	return &cri.PodSandboxStats{
		Attributes: &cri.PodSandboxAttributes{
			Id: p.ID, Metadata: cfg.GetMetadata(), Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations(),
		},
		Linux: linux,
	}
}

func networkUsage(u *usage.Network) *cri.NetworkUsage {
	if u == nil {
		return nil
	}
	out := &cri.NetworkUsage{Timestamp: u.At.UnixNano()}
	if u.Default != nil {
		out.DefaultInterface = interfaceUsage(*u.Default)
	}
	for _, i := range u.Others {
		out.Interfaces = append(out.Interfaces, interfaceUsage(i))
	}
	return out
}

func interfaceUsage(i usage.Interface) *cri.NetworkInterfaceUsage {
	return &cri.NetworkInterfaceUsage{
		Name: i.Name, RxBytes: value(i.RxBytes), RxErrors: value(i.RxErrors), TxBytes: value(i.TxBytes),
		TxErrors: value(i.TxErrors),
	}
}

func processUsage(u usage.Sample) *cri.ProcessUsage {
	if u.Usage == nil || u.Usage.Pids == nil {
		return nil
	}
	return &cri.ProcessUsage{Timestamp: u.Usage.At.UnixNano(), ProcessCount: value(u.Usage.Pids.Current)}
}
