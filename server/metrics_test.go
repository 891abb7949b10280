package server

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/sandbox/usage"
)

var update = flag.Bool("update", false, "write the golden files")

// conformance has the metrics that critest requires, after v1.36 (kubernetes-sigs/cri-tools#2017).
const conformance = `container_blkio_device_usage_total container_cpu_cfs_periods_total
container_cpu_cfs_throttled_periods_total container_cpu_cfs_throttled_seconds_total container_cpu_system_seconds_total
container_cpu_usage_seconds_total container_cpu_user_seconds_total container_file_descriptors container_fs_inodes_free
container_fs_inodes_total container_fs_limit_bytes container_fs_reads_bytes_total container_fs_reads_total
container_fs_usage_bytes container_fs_writes_bytes_total container_fs_writes_total container_hugetlb_max_usage_bytes
container_hugetlb_usage_bytes container_last_seen container_memory_cache container_memory_failcnt
container_memory_failures_total container_memory_kernel_usage container_memory_mapped_file
container_memory_max_usage_bytes container_memory_rss container_memory_swap container_memory_usage_bytes
container_memory_working_set_bytes container_network_receive_bytes_total container_network_receive_errors_total
container_network_receive_packets_dropped_total container_network_receive_packets_total
container_network_transmit_bytes_total container_network_transmit_errors_total
container_network_transmit_packets_dropped_total container_network_transmit_packets_total container_oom_events_total
container_pressure_cpu_stalled_seconds_total container_pressure_cpu_waiting_seconds_total
container_pressure_io_stalled_seconds_total container_pressure_io_waiting_seconds_total
container_pressure_memory_stalled_seconds_total container_pressure_memory_waiting_seconds_total container_processes
container_sockets container_spec_cpu_period container_spec_cpu_quota container_spec_cpu_shares
container_spec_memory_limit_bytes container_spec_memory_reservation_limit_bytes container_spec_memory_swap_limit_bytes
container_start_time_seconds container_threads container_threads_max container_ulimits_soft`

// peers has further metrics of CRI-O or containerd.
const peers = `container_memory_total_active_file_bytes container_memory_total_inactive_file_bytes
container_memory_active_anon_bytes container_memory_inactive_anon_bytes container_memory_anon_thp_bytes
container_memory_shmem_thp_bytes container_memory_file_thp_bytes container_fs_sector_reads_total
container_fs_sector_writes_total container_fs_reads_merged_total container_fs_writes_merged_total
container_fs_read_seconds_total container_fs_write_seconds_total container_fs_io_current
container_fs_io_time_seconds_total container_fs_io_time_weighted_seconds_total`

func testListMetricDescriptors(t *testing.T) {
	h := newHarness(t)
	got := must[*cri.ListMetricDescriptorsResponse](t)(
		h.runtime.ListMetricDescriptors(t.Context(), &cri.ListMetricDescriptorsRequest{}),
	).GetDescriptors()
	names := map[string]bool{}
	for _, d := range got {
		if names[d.GetName()] {
			t.Errorf("second descriptor of %s, want one", d.GetName())
		}
		names[d.GetName()] = true
		if !strings.HasSuffix(d.GetHelp(), ".") ||
			!slices.Equal(d.GetLabelKeys()[:6], []string{"pod", "namespace", "container", "id", "image", "name"}) {
			t.Errorf("descriptor %v, want a sentence as help, and the base labels first", d)
		}
	}
	for name := range strings.FieldsSeq(conformance + " " + peers) {
		if !names[name] {
			t.Errorf("no descriptor of %s, want one", name)
		}
	}
}

// detailedUsage returns a node on which all values of the running container are known.
func detailedUsage(t testing.TB) *harness {
	h := withUsage(t)
	details := &usage.Details{
		Details: cgroups.Details{
			At: sampled, Events: cgroups.MemoryEvents{Peak: 2000, Failures: 41, OOMKills: 42},
			IO: []cgroups.IO{
				{Major: 259, Minor: 1, Name: "nvme0n1", ReadBytes: 5120, WriteBytes: 1024, Reads: 5, Writes: 6},
			},
			Hugepages: []cgroups.Hugepages{{Size: "2MB", Usage: 2 << 20, Peak: 4 << 20, Limit: 6 << 20}},
			Limits: cgroups.Limits{
				CPUShares: 512, CPUQuota: 20000, CPUPeriod: 100000, Memory: 5000, Reservation: cgroups.Unlimited,
				MemorySwap: 5300, Pids: 100,
			},
			Processes: []int{4711, 4712, 4713},
		},
		OpenFiles: usage.OpenFiles{Files: new(uint64(51)), Sockets: new(uint64(52)), MaxOpenFiles: new(uint64(1024))},
	}
	c := h.engine.containerUsage[runningID]
	c.Details = details
	h.engine.containerUsage[runningID] = c
	return h
}

// TestMetricsGolden compares every metric of a pod and its container, with labels and value, to a text file.
func TestMetricsGolden(t *testing.T) {
	h := detailedUsage(t)
	pods := listMetrics(t, h)
	if len(pods) != 1 || pods[0].GetPodSandboxId() != podID || len(pods[0].GetContainerMetrics()) != 1 ||
		pods[0].GetContainerMetrics()[0].GetContainerId() != runningID {
		t.Fatalf("got %v, want pod %s with container %s", pods, podID, runningID)
	}
	var text strings.Builder
	image := runningContainer().Config.GetImage().GetUserSpecifiedImage()
	write := func(who string, base []string, ms []*cri.Metric) {
		for _, m := range ms {
			if values := m.GetLabelValues(); !slices.Equal(values[:6], base) {
				t.Errorf("%s of the %s: labels = %q, want %q first", m.GetName(), who, values, base)
			}
			val := fmt.Sprint(m.GetValue().GetValue())
			if m.GetName() == "container_last_seen" {
				val = "(now)"
			}
			fmt.Fprintf(
				&text, "%-9s %s %s%v = %s\n", who, strings.ToLower(m.GetMetricType().String()), m.GetName(),
				m.GetLabelValues()[6:], val,
			)
		}
	}
	write("pod", []string{"web", "default", "", podID, "", ""}, pods[0].GetMetrics())
	write(
		"container", []string{"web", "default", "main", runningID, "registry.k8s.io/" + image, runningID},
		pods[0].GetContainerMetrics()[0].GetMetrics(),
	)
	const path = "testdata/metrics.txt"
	if *update {
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != text.String() {
		t.Errorf("got:\n%s\nwant the text of %s (%v; run with -update if this is meant)", text.String(), path, err)
	}
}

func listMetrics(t *testing.T, h *harness) []*cri.PodSandboxMetrics {
	t.Helper()
	return must[*cri.ListPodSandboxMetricsResponse](t)(
		h.runtime.ListPodSandboxMetrics(t.Context(), &cri.ListPodSandboxMetricsRequest{}),
	).GetPodMetrics()
}

func labelKeys(t *testing.T, h *harness) map[string][]string {
	t.Helper()
	keys := map[string][]string{}
	for _, d := range must[*cri.ListMetricDescriptorsResponse](t)(
		h.runtime.ListMetricDescriptors(t.Context(), &cri.ListMetricDescriptorsRequest{}),
	).GetDescriptors() {
		keys[d.GetName()] = d.GetLabelKeys()
	}
	return keys
}

// testListPodSandboxMetrics checks, like critest, that every metric has a value with the labels of its descriptor.
func testListPodSandboxMetrics(t *testing.T) {
	h := detailedUsage(t)
	keys, seen := labelKeys(t, h), map[string]bool{}
	pods := listMetrics(t, h)
	if len(pods) != 1 {
		t.Fatalf("%d pods, want 1", len(pods))
	}
	for _, m := range slices.Concat(pods[0].GetMetrics(), pods[0].GetContainerMetrics()[0].GetMetrics()) {
		seen[m.GetName()] = true
		if len(m.GetLabelValues()) != len(keys[m.GetName()]) {
			t.Errorf("%s: labels = %q, want values of %q", m.GetName(), m.GetLabelValues(), keys[m.GetName()])
		}
		if m.GetValue() == nil || time.Since(time.Unix(0, m.GetTimestamp())) < 0 {
			t.Errorf("metric %v, want a value and a timestamp in the past", m)
		}
	}
	for name := range keys {
		if !seen[name] {
			t.Errorf("no value of %s, want one", name)
		}
	}
}

// TestMetricsOfLess: a pod without a cgroup has only metrics of its network; a container without details has only
// those of its usage.
func TestMetricsOfLess(t *testing.T) {
	h := withUsage(t) // without details
	u := h.engine.podUsage[podID]
	u.Path = ""
	h.engine.podUsage[podID] = u
	pods := listMetrics(t, h)
	of := func(ms []*cri.Metric, prefix string) (n int) {
		for _, m := range ms {
			if strings.HasPrefix(m.GetName(), prefix) {
				n++
			}
		}
		return n
	}
	own, container := pods[0].GetMetrics(), pods[0].GetContainerMetrics()[0].GetMetrics()
	if of(own, "container_network") != 16 || of(own, "container_cpu") != 0 || of(own, "container_memory") != 0 {
		t.Errorf("metrics of the pod = %v, want 16 of the network and none of CPU and memory", own)
	}
	if of(container, "container_cpu") != 8 || of(container, "container_spec") != 0 ||
		of(container, "container_network") != 0 {
		t.Errorf("metrics of the container = %v, want 8 of CPU, none of spec and network", container)
	}
	h.engine.podUsage[podID] = usage.Pod{}
	if pods := listMetrics(t, h); len(pods) != 1 || len(pods[0].GetMetrics()) != 1 ||
		len(pods[0].GetContainerMetrics()) != 0 {
		t.Errorf("metrics without usage = %v, want one of the pod", pods)
	}
}

// TestMetricsOfOwnKernel: the runtime of a container that has a separate kernel reports its usage without details, and
// btrfs, ZFS and tmpfs have no block device. critest still demands a value of each metric, except some of those that
// peers lack.
func TestMetricsOfOwnKernel(t *testing.T) {
	h := detailedUsage(t)
	h.engine.device = ""
	c := h.engine.containerUsage[runningID]
	c.Details = &usage.Details{
		Details:   cgroups.Details{At: sampled},
		OpenFiles: usage.OpenFiles{Files: new(uint64), Sockets: new(uint64)},
	}
	h.engine.containerUsage[runningID] = c
	seen := map[string]bool{}
	pods := listMetrics(t, h)
	for _, m := range slices.Concat(pods[0].GetMetrics(), pods[0].GetContainerMetrics()[0].GetMetrics()) {
		seen[m.GetName()] = true
	}
	excused := []string{
		"container_hugetlb_max_usage_bytes", "container_hugetlb_usage_bytes", "container_ulimits_soft",
	}
	for name := range labelKeys(t, h) {
		if !seen[name] && !slices.Contains(excused, name) {
			t.Errorf("no value of %s, want one", name)
		}
	}
}

func testStreamPodSandboxMetrics(t *testing.T) {
	h := detailedUsage(t)
	stream, err := h.runtime.StreamPodSandboxMetrics(t.Context(), &cri.StreamPodSandboxMetricsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := receive(t, stream, (*cri.StreamPodSandboxMetricsResponse).GetPodSandboxMetrics)
	want := listMetrics(t, h)
	for _, pods := range [][]*cri.PodSandboxMetrics{got, want} {
		for _, m := range slices.Concat(pods[0].GetMetrics(), pods[0].GetContainerMetrics()[0].GetMetrics()) {
			if m.GetName() == "container_last_seen" || m.GetName() == "container_start_time_seconds" {
				m.Timestamp, m.Value = 0, nil // depend on the time of the call
			}
		}
	}
	if len(got) != len(want) || !proto.Equal(got[0], want[0]) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestStreamMetricsIsNotBounded streams the metrics of more pods than fit in one message, without a rate limit.
func TestStreamMetricsIsNotBounded(t *testing.T) {
	h := crowd(t, 500)
	start := time.Now()
	s, err := h.runtime.StreamPodSandboxMetrics(t.Context(), &cri.StreamPodSandboxMetricsRequest{})
	n, err := drain(s, err, (*cri.StreamPodSandboxMetricsResponse).GetPodSandboxMetrics)
	if err != nil || n != 500 {
		t.Errorf("got %d pods, %v, want 500", n, err)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("500 pods took %v, want at most 20s", took)
	}
}

// drain counts the items of a stream.
func drain[M, T any](s interface{ Recv() (M, error) }, err error, items func(M) []T) (n int, _ error) {
	for err == nil {
		var m M
		m, err = s.Recv()
		n += len(items(m))
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func quietCrowd(b *testing.B, n int) *harness {
	h := crowd(b, n)
	h.server.deps.Log.(*logrus.Logger).SetOutput(io.Discard)
	return h
}

// repeat reports the median time of a call that returns n items.
func repeat(b *testing.B, n int, call func() (int, error)) {
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		if got, err := call(); err != nil || got != n {
			b.Fatalf("got %d items, %v, want %d", got, err, n)
		}
		took = append(took, time.Since(start))
	}
	b.ReportMetric(float64(median(took).Microseconds())/1000, "p50-ms")
}

func BenchmarkListContainerStats(b *testing.B) {
	for _, n := range []int{20, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h := quietCrowd(b, n)
			repeat(b, n, func() (int, error) {
				r, err := h.runtime.ListContainerStats(b.Context(), &cri.ListContainerStatsRequest{})
				return len(r.GetStats()), err
			})
		})
	}
}

func BenchmarkStreamPodSandboxStats(b *testing.B) {
	h := quietCrowd(b, 1000)
	repeat(b, 1000, func() (int, error) {
		s, err := h.runtime.StreamPodSandboxStats(b.Context(), &cri.StreamPodSandboxStatsRequest{})
		return drain(s, err, (*cri.StreamPodSandboxStatsResponse).GetPodSandboxStats)
	})
}

// BenchmarkStreamPodSandboxMetrics measures a full node.
func BenchmarkStreamPodSandboxMetrics(b *testing.B) {
	h := quietCrowd(b, 250)
	repeat(b, 250, func() (int, error) {
		s, err := h.runtime.StreamPodSandboxMetrics(b.Context(), &cri.StreamPodSandboxMetricsRequest{})
		return drain(s, err, (*cri.StreamPodSandboxMetricsResponse).GetPodSandboxMetrics)
	})
}
