package server

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/sandbox/usage"
)

var sampled = created.Add(time.Hour)

// fullUsage has a different value in every field.
func fullUsage() cgroups.Usage {
	return cgroups.Usage{
		At: sampled,
		CPU: &cgroups.CPU{
			Total: 12_345_678_901, User: 10e9, System: 2_345_678_901, Periods: 21, Throttled: 22,
			ThrottledTime: 23e9, Bursts: 24, BurstTime: 25e9,
		},
		Memory: &cgroups.Memory{
			Usage: 1000, WorkingSet: 900, Limit: 5000, RSS: 801, Cache: 802, MappedFile: 803, ActiveAnon: 804,
			InactiveAnon: 805, ActiveFile: 806,
			InactiveFile: 807, AnonHugepages: 808, ShmemHugepages: 809, FileHugepages: 810, PageFaults: 830, MajorFaults: 30,
			LocalPageFaults: 820, LocalMajorFaults: 20, Kernel: 811,
		},
		Swap:           &cgroups.Swap{Usage: 70, Limit: 300},
		Pids:           &cgroups.Pids{Current: 17, Limit: 100},
		CPUPressure:    pressureOf(1),
		MemoryPressure: pressureOf(2),
		IOPressure:     pressureOf(3),
	}
}

func pressureOf(n int) *cgroups.Pressure {
	s := time.Duration(n) * time.Second
	return &cgroups.Pressure{
		Some: cgroups.Stall{Avg10: float64(n), Avg60: float64(n) + 0.25, Avg300: float64(n) + 0.5, Total: 10 * s},
		Full: cgroups.Stall{Avg10: float64(n) + 0.01, Total: s},
	}
}

func psiOf(n int) *cri.PsiStats {
	return &cri.PsiStats{
		Some: &cri.PsiData{Avg10: float64(n), Avg60: float64(n) + 0.25, Avg300: float64(n) + 0.5, Total: uint64(n) * 10e9},
		Full: &cri.PsiData{Avg10: float64(n) + 0.01, Total: uint64(n) * 1e9},
	}
}

func fullContainerUsage() usage.Container {
	u := fullUsage()
	return usage.Container{
		Sample:   usage.Sample{Path: "/kubepods/podu-1/podd-" + runningID, Usage: &u, NanoCores: new(uint64(250_000_000))},
		Writable: &image.FsUsage{Mountpoint: "/var/lib/podd/storage", Bytes: 4096, Inodes: 3, At: sampled.Add(-time.Second)},
	}
}

// withUsage returns a node on which all values are measured.
func withUsage(t testing.TB) *harness {
	h := newHarness(t)
	h.engine.containerUsage = map[string]usage.Container{runningID: fullContainerUsage()}
	h.engine.writable = map[string]*image.FsUsage{
		exitedID: {Mountpoint: "/var/lib/podd/storage", Bytes: 1, Inodes: 1, At: sampled},
	}
	u := fullUsage()
	u.CPU.Total = 99e9
	h.engine.podUsage = map[string]usage.Pod{podID: {
		Sample: usage.Sample{Path: "/kubepods/podu-1", Usage: &u, NanoCores: new(uint64(7))},
		Network: &usage.Network{
			At: sampled,
			Default: &usage.Interface{
				Name: "eth0", RxBytes: 1, RxPackets: 2, RxErrors: 3, RxDropped: 4, TxBytes: 5, TxPackets: 6,
				TxErrors: 7, TxDropped: 8,
			},
			Others: []usage.Interface{{Name: "net1", RxBytes: 11, TxBytes: 15}},
		},
		Containers: h.engine.containerUsage,
	}}
	h.engine.device = "vda"
	h.engine.disk = image.Filesystem{Major: 254, Bytes: 1 << 40, Inodes: 1 << 20, InodesFree: 1 << 19, At: sampled}
	return h
}

// wantContainerStats is fullContainerUsage as a CRI message.
func wantContainerStats() *cri.ContainerStats {
	at, sent := sampled.UnixNano(), goodContainer()
	return &cri.ContainerStats{
		Attributes: &cri.ContainerAttributes{
			Id: runningID, Metadata: sent.GetMetadata(), Labels: sent.GetLabels(),
			Annotations: sent.GetAnnotations(),
		},
		Cpu: &cri.CpuUsage{
			Timestamp: at, UsageCoreNanoSeconds: value(12_345_678_901), UsageNanoCores: value(250_000_000),
			Psi: psiOf(1),
		},
		Memory: &cri.MemoryUsage{
			Timestamp: at, WorkingSetBytes: value(900), AvailableBytes: value(4100), UsageBytes: value(1000),
			RssBytes:   value(801),
			PageFaults: value(800), MajorPageFaults: value(30), Psi: psiOf(2),
		},
		Swap: &cri.SwapUsage{Timestamp: at, SwapAvailableBytes: value(230), SwapUsageBytes: value(70)},
		Io:   &cri.IoUsage{Timestamp: at, Psi: psiOf(3)},
		WritableLayer: &cri.FilesystemUsage{
			Timestamp: at - 1e9, FsId: &cri.FilesystemIdentifier{Mountpoint: "/var/lib/podd/storage"},
			UsedBytes: value(4096), InodesUsed: value(3),
		},
	}
}

func testContainerStats(t *testing.T) {
	h := withUsage(t)
	get := func(id string) *cri.ContainerStats {
		return must[*cri.ContainerStatsResponse](t)(
			h.runtime.ContainerStats(t.Context(), &cri.ContainerStatsRequest{ContainerId: id}),
		).GetStats()
	}
	for _, id := range []string{runningID, runningID[:4]} {
		if got, want := get(id), wantContainerStats(); !proto.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	}
	exited := get(exitedID)
	if exited.GetAttributes().GetId() != exitedID || exited.GetCpu() != nil || exited.GetMemory() != nil ||
		exited.GetWritableLayer().GetUsedBytes().GetValue() != 1 {
		t.Errorf("exited container: %v, want only the usage of the writable layer", exited)
	}
	_, err := h.runtime.ContainerStats(t.Context(), &cri.ContainerStatsRequest{ContainerId: "ffff"})
	wantCode(t, err, codes.NotFound)
}

// TestStatsOfLess: a value that is not measured is left out, and nothing else.
func TestStatsOfLess(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(u *usage.Container)
		want   func(s *cri.ContainerStats)
	}{
		"no rate yet": {
			func(u *usage.Container) { u.NanoCores = nil },
			func(s *cri.ContainerStats) { s.Cpu.UsageNanoCores = nil },
		},
		"no memory limit": {
			func(u *usage.Container) { u.Usage.Memory.Limit = cgroups.Unlimited },
			func(s *cri.ContainerStats) { s.Memory.AvailableBytes = nil },
		},
		"over the limit": {
			func(u *usage.Container) { u.Usage.Memory.Limit = 1 },
			func(s *cri.ContainerStats) { s.Memory.AvailableBytes = value(0) },
		},
		"no swap limit": {
			func(u *usage.Container) { u.Usage.Swap.Limit = cgroups.Unlimited },
			func(s *cri.ContainerStats) { s.Swap.SwapAvailableBytes = nil },
		},
		"swap not accounted": {
			func(u *usage.Container) { u.Usage.Swap = nil }, func(s *cri.ContainerStats) { s.Swap = nil },
		},
		"no pressure": {
			func(u *usage.Container) { u.Usage.CPUPressure, u.Usage.IOPressure = nil, nil },
			func(s *cri.ContainerStats) { s.Cpu.Psi, s.Io = nil, nil },
		},
		"no memory": {
			func(u *usage.Container) { u.Usage.Memory = nil }, func(s *cri.ContainerStats) { s.Memory = nil },
		},
		"no CPU": {func(u *usage.Container) { u.Usage.CPU = nil }, func(s *cri.ContainerStats) { s.Cpu = nil }},
		"layer not measured": {
			func(u *usage.Container) { u.Writable = nil }, func(s *cri.ContainerStats) { s.WritableLayer = nil },
		},
		"faults out of order": {
			func(u *usage.Container) { u.Usage.Memory.PageFaults = 1 },
			func(s *cri.ContainerStats) { s.Memory.PageFaults = value(0) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			u, want := fullContainerUsage(), wantContainerStats()
			tt.change(&u)
			tt.want(want)
			if got := containerStats(runningContainer().Container, u); !proto.Equal(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
		})
	}
}

func testListContainerStats(t *testing.T) {
	h := withUsage(t)
	statsFilters(t, h, func(f *cri.ContainerStatsFilter) []*cri.ContainerStats {
		return must[*cri.ListContainerStatsResponse](t)(
			h.runtime.ListContainerStats(t.Context(), &cri.ListContainerStatsRequest{Filter: f}),
		).GetStats()
	})
	_, err := h.runtime.ListContainerStats(
		t.Context(), &cri.ListContainerStatsRequest{Filter: &cri.ContainerStatsFilter{PodSandboxId: "\x00"}},
	)
	wantCode(t, err, codes.InvalidArgument, "filter.pod_sandbox_id")
}

// statsFilters lists with every filter: exited containers, and those that cannot be measured, are left out.
func statsFilters(t *testing.T, h *harness, list func(*cri.ContainerStatsFilter) []*cri.ContainerStats) {
	t.Helper()
	createdOnly := runningContainer()
	r := *createdOnly.Container
	r.ID = "cc11" + r.ID[4:]
	createdOnly.Container, createdOnly.Status.State = &r, record.ContainerCreated
	unmeasured := createdOnly
	u := *createdOnly.Container
	u.ID = "cc22" + r.ID[4:]
	unmeasured.Container = &u
	h.engine.containers = append(h.engine.containers, createdOnly, unmeasured)
	h.engine.containerUsage[r.ID] = fullContainerUsage()
	h.engine.containerUsage[exitedID] = fullContainerUsage()
	for name, tt := range map[string]struct {
		filter *cri.ContainerStatsFilter
		want   []string
	}{
		"none":      {nil, []string{runningID, r.ID}},
		"empty":     {&cri.ContainerStatsFilter{}, []string{runningID, r.ID}},
		"id":        {&cri.ContainerStatsFilter{Id: runningID}, []string{runningID}},
		"prefix":    {&cri.ContainerStatsFilter{Id: "cccc"}, []string{runningID}},
		"exited":    {&cri.ContainerStatsFilter{Id: exitedID}, nil},
		"pod":       {&cri.ContainerStatsFilter{PodSandboxId: podID}, []string{runningID, r.ID}},
		"other pod": {&cri.ContainerStatsFilter{PodSandboxId: stoppedID}, nil},
		"labels": {
			&cri.ContainerStatsFilter{LabelSelector: map[string]string{"app": "web"}}, []string{runningID, r.ID},
		},
		"other labels": {&cri.ContainerStatsFilter{LabelSelector: map[string]string{"app": "other"}}, nil},
		"absent":       {&cri.ContainerStatsFilter{Id: "ffff"}, nil},
	} {
		var got []string
		for _, s := range list(tt.filter) {
			got = append(got, s.GetAttributes().GetId())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
	if got, want := list(nil)[0], wantContainerStats(); !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func testStreamContainerStats(t *testing.T) {
	h := withUsage(t)
	statsFilters(t, h, func(f *cri.ContainerStatsFilter) []*cri.ContainerStats {
		s, err := h.runtime.StreamContainerStats(t.Context(), &cri.StreamContainerStatsRequest{Filter: f})
		if err != nil {
			t.Fatal(err)
		}
		all, _ := receive(t, s, (*cri.StreamContainerStatsResponse).GetContainerStats)
		return all
	})
	s, err := h.runtime.StreamContainerStats(
		t.Context(), &cri.StreamContainerStatsRequest{Filter: &cri.ContainerStatsFilter{Id: "\x00"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Recv()
	wantCode(t, err, codes.InvalidArgument, "filter.id")
}

// TestStreamStatsIsNotBounded streams more containers than fit in one message.
func TestStreamStatsIsNotBounded(t *testing.T) {
	h := crowd(t, 3000)
	s, err := h.runtime.StreamContainerStats(t.Context(), &cri.StreamContainerStatsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	n, messages := 0, 0
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if size := proto.Size(m); size > batchBytes+16384 {
			t.Errorf("message of %d bytes, want at most %d", size, batchBytes)
		}
		n, messages = n+len(m.GetContainerStats()), messages+1
	}
	if n != 3000 || messages < 2 {
		t.Errorf("%d containers in %d messages", n, messages)
	}
}

// crowd returns a node with n pods of one container each, all measured.
func crowd(t testing.TB, n int) *harness {
	h := withUsage(t)
	pod := h.engine.podUsage[podID]
	h.engine.pods, h.engine.containers = nil, nil
	for i := range n {
		id := fmt.Sprintf("%064d", i)
		p, c := podRecord(id), *runningContainer().Container
		c.ID, c.PodID = id, id
		h.engine.pods = append(h.engine.pods, record.PodView{Pod: p, Status: record.PodStatus{State: record.PodReady}})
		running := record.ContainerView{Container: &c, Status: runningContainer().Status}
		h.engine.containers = append(h.engine.containers, running)
		h.engine.containerUsage[id] = fullContainerUsage()
		u := pod
		u.Containers = map[string]usage.Container{id: fullContainerUsage()}
		h.engine.podUsage[id] = u
	}
	return h
}
