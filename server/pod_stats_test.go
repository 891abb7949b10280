package server

import (
	"fmt"
	"slices"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/usage"
)

func wantPodStats() *cri.PodSandboxStats {
	at, sent, of := sampled.UnixNano(), podRecord(podID).Config, wantContainerStats()
	of.Cpu.UsageCoreNanoSeconds, of.Cpu.UsageNanoCores = value(99e9), value(7)
	return &cri.PodSandboxStats{
		Attributes: &cri.PodSandboxAttributes{
			Id: podID, Metadata: sent.GetMetadata(), Labels: sent.GetLabels(), Annotations: sent.GetAnnotations(),
		},
		Linux: &cri.LinuxPodSandboxStats{
			Cpu: of.Cpu, Memory: of.Memory, Io: of.Io,
			Process: &cri.ProcessUsage{Timestamp: at, ProcessCount: value(17)},
			Network: &cri.NetworkUsage{
				Timestamp: at,
				DefaultInterface: &cri.NetworkInterfaceUsage{
					Name: "eth0", RxBytes: value(1), RxErrors: value(3), TxBytes: value(5), TxErrors: value(7),
				},
				Interfaces: []*cri.NetworkInterfaceUsage{
					{Name: "net1", RxBytes: value(11), RxErrors: value(0), TxBytes: value(15), TxErrors: value(0)},
				},
			},
			Containers: []*cri.ContainerStats{wantContainerStats()},
		},
	}
}

func testPodSandboxStats(t *testing.T) {
	h := withUsage(t)
	get := func(id string) *cri.PodSandboxStats {
		return must[*cri.PodSandboxStatsResponse](t)(
			h.runtime.PodSandboxStats(t.Context(), &cri.PodSandboxStatsRequest{PodSandboxId: id}),
		).GetStats()
	}
	if got, want := get(podID[:4]), wantPodStats(); !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if stopped := get(stoppedID); stopped.GetAttributes().GetId() != stoppedID || stopped.GetLinux().GetCpu() != nil {
		t.Errorf("stats of a stopped pod = %v, want its attributes and no usage", stopped)
	}
	_, err := h.runtime.PodSandboxStats(t.Context(), &cri.PodSandboxStatsRequest{PodSandboxId: "ffff"})
	wantCode(t, err, codes.NotFound)
}

func testListPodSandboxStats(t *testing.T) {
	h := withUsage(t)
	podStatsFilters(t, h, func(f *cri.PodSandboxStatsFilter) []*cri.PodSandboxStats {
		return must[*cri.ListPodSandboxStatsResponse](t)(
			h.runtime.ListPodSandboxStats(t.Context(), &cri.ListPodSandboxStatsRequest{Filter: f}),
		).GetStats()
	})
	_, err := h.runtime.ListPodSandboxStats(
		t.Context(), &cri.ListPodSandboxStatsRequest{Filter: &cri.PodSandboxStatsFilter{Id: "\x00"}},
	)
	wantCode(t, err, codes.InvalidArgument, "filter.id")
}

func podStatsFilters(t *testing.T, h *harness, list func(*cri.PodSandboxStatsFilter) []*cri.PodSandboxStats) {
	t.Helper()
	h.engine.podUsage[stoppedID] = h.engine.podUsage[podID]
	for name, tt := range map[string]struct {
		filter *cri.PodSandboxStatsFilter
		want   []string
	}{
		"none":    {nil, []string{podID}},
		"id":      {&cri.PodSandboxStatsFilter{Id: podID}, []string{podID}},
		"prefix":  {&cri.PodSandboxStatsFilter{Id: "aa"}, []string{podID}},
		"stopped": {&cri.PodSandboxStatsFilter{Id: stoppedID}, nil},
		"labels": {
			&cri.PodSandboxStatsFilter{LabelSelector: map[string]string{"app": "web", "id": podID}},
			[]string{podID},
		},
		"other labels": {&cri.PodSandboxStatsFilter{LabelSelector: map[string]string{"app": "other"}}, nil},
	} {
		var got []string
		for _, s := range list(tt.filter) {
			got = append(got, s.GetAttributes().GetId())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
	if got, want := list(nil)[0], wantPodStats(); !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func testStreamPodSandboxStats(t *testing.T) {
	h := withUsage(t)
	podStatsFilters(t, h, func(f *cri.PodSandboxStatsFilter) []*cri.PodSandboxStats {
		s, err := h.runtime.StreamPodSandboxStats(t.Context(), &cri.StreamPodSandboxStatsRequest{Filter: f})
		if err != nil {
			t.Fatal(err)
		}
		all, _ := receive(t, s, (*cri.StreamPodSandboxStatsResponse).GetPodSandboxStats)
		return all
	})
	s, err := h.runtime.StreamPodSandboxStats(
		t.Context(), &cri.StreamPodSandboxStatsRequest{Filter: &cri.PodSandboxStatsFilter{Id: "\x00"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Recv()
	wantCode(t, err, codes.InvalidArgument, "filter.id")
}

// TestPodStatsOfLess: a pod on the host network without containers is listed.
func TestPodStatsOfLess(t *testing.T) {
	h := withUsage(t)
	h.engine.podUsage[podID] = usage.Pod{}
	got := must[*cri.ListPodSandboxStatsResponse](t)(
		h.runtime.ListPodSandboxStats(t.Context(), &cri.ListPodSandboxStatsRequest{}),
	).GetStats()
	want := &cri.PodSandboxStats{Attributes: wantPodStats().GetAttributes(), Linux: &cri.LinuxPodSandboxStats{}}
	if len(got) != 1 || !proto.Equal(got[0], want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func testUpdatePodSandboxResources(t *testing.T) {
	h := newHarness(t)
	overhead, resources := &cri.LinuxContainerResources{CpuShares: 10}, &cri.LinuxContainerResources{
		MemoryLimitInBytes: 1 << 30,
	}
	update := func(r *cri.UpdatePodSandboxResourcesRequest) error {
		_, err := h.runtime.UpdatePodSandboxResources(t.Context(), r)
		return err
	}
	wantCode(t, update(
		&cri.UpdatePodSandboxResourcesRequest{PodSandboxId: podID, Overhead: overhead, Resources: resources},
	), codes.OK)
	if !proto.Equal(h.engine.overhead, overhead) || !proto.Equal(h.engine.resources, resources) {
		t.Errorf("engine got %v and %v, want %v and %v", h.engine.overhead, h.engine.resources, overhead, resources)
	}
	wantCode(t, update(&cri.UpdatePodSandboxResourcesRequest{
		PodSandboxId: podID, Overhead: &cri.LinuxContainerResources{CpuQuota: 25000, MemoryLimitInBytes: 4096},
		Resources: &cri.LinuxContainerResources{CpuQuota: -25001, MemoryLimitInBytes: -4097},
	}), codes.OK)
	if got := h.engine.resources; got.GetCpuQuota() != -1 || got.GetMemoryLimitInBytes() != -1 {
		t.Errorf("no limit less an overhead: engine got %v, want -1 for both", got)
	}
	for want, fail := range map[codes.Code]error{
		codes.NotFound:           errdefs.ErrNotFound,
		codes.FailedPrecondition: fmt.Errorf("%w: the pod has no cgroup_parent", errdefs.ErrFailedPrecondition),
	} {
		h.engine.fail["UpdatePod"] = fail
		wantCode(t, update(&cri.UpdatePodSandboxResourcesRequest{PodSandboxId: podID, Resources: resources}), want)
	}
	for _, r := range []*cri.UpdatePodSandboxResourcesRequest{
		{Resources: resources}, {PodSandboxId: podID},
		{PodSandboxId: podID, Resources: &cri.LinuxContainerResources{CpuPeriod: -1}},
		{PodSandboxId: podID, Overhead: &cri.LinuxContainerResources{CpuPeriod: -1}},
	} {
		wantCode(t, update(r), codes.InvalidArgument)
	}
}
