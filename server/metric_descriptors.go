package server

import (
	"strconv"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/sandbox/usage"
)

// One table has each metric's descriptor and its values, so that the two cannot differ. The names, their labels and
// what they mean are cAdvisor's, whose place these metrics take (KEP-2371). CRI's values are whole numbers, so that
// times are in whole seconds.

// metric is one row.
type metric struct {
	name string
	kind cri.MetricType
	// labels are those beyond baseLabels.
	labels []string
	// values calls add for each combination of labels; not at all when nothing is known.
	values func(m *measured, add func(n uint64, labels ...string))
	help   string
}

// metricGroup is metrics of one source.
type metricGroup struct {
	// at is when the source was measured, zero when it was not.
	at      func(m *measured) time.Time
	metrics []metric
}

const (
	counter = cri.MetricType_COUNTER
	gauge   = cri.MetricType_GAUGE
)

// baseLabels are those of every metric: pod, namespace and container are names; id is that of the container or the pod
// sandbox, where cAdvisor has the path of a control group, which would make up most of an answer; name is the
// container's id, as cAdvisor has it. container, image and name are empty for a pod.
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
		{"container_last_seen", gauge, nil, func(m *measured, add add) { add(uint64(m.now.Unix())) }, "Last time a container was seen, in seconds since the Unix epoch."},
		{"container_start_time_seconds", gauge, nil, func(m *measured, add add) {
			if !m.started.IsZero() {
				add(uint64(m.started.Unix()))
			}
		}, "Start time of the container in seconds since the Unix epoch."},
	}
}

func cpuMetrics() []metric {
	of := func(labels []string, pick func(c *cgroups.CPU) uint64) func(*measured, add) {
		return func(m *measured, add add) {
			if m.Usage.CPU != nil {
				add(pick(m.Usage.CPU), labels...)
			}
		}
	}
	total := []string{"total"}
	return []metric{
		{"container_cpu_usage_seconds_total", counter, []string{"cpu"}, of(total, func(c *cgroups.CPU) uint64 { return wholeSeconds(c.Total) }), "Cumulative CPU time consumed, in seconds."},
		{"container_cpu_user_seconds_total", counter, nil, of(nil, func(c *cgroups.CPU) uint64 { return wholeSeconds(c.User) }), "Cumulative user CPU time consumed, in seconds."},
		{"container_cpu_system_seconds_total", counter, nil, of(nil, func(c *cgroups.CPU) uint64 { return wholeSeconds(c.System) }), "Cumulative system CPU time consumed, in seconds."},
		{"container_cpu_cfs_periods_total", counter, nil, of(nil, func(c *cgroups.CPU) uint64 { return c.Periods }), "Number of elapsed enforcement period intervals."},
		{"container_cpu_cfs_throttled_periods_total", counter, nil, of(nil, func(c *cgroups.CPU) uint64 { return c.Throttled }), "Number of throttled period intervals."},
		{"container_cpu_cfs_throttled_seconds_total", counter, nil, of(nil, func(c *cgroups.CPU) uint64 { return wholeSeconds(c.ThrottledTime) }), "Total time the container has been throttled, in seconds."},
		{"container_cpu_cfs_burst_periods_total", counter, nil, of(nil, func(c *cgroups.CPU) uint64 { return c.Bursts }), "Number of periods in which the container used more than its quota."},
		{"container_cpu_cfs_burst_seconds_total", counter, nil, of(nil, func(c *cgroups.CPU) uint64 { return wholeSeconds(c.BurstTime) }), "Total CPU time used beyond the quota, in seconds."},
	}
}

func memoryMetrics() []metric {
	of := func(pick func(m *cgroups.Memory) uint64) func(*measured, add) {
		return func(m *measured, add add) {
			if m.Usage.Memory != nil {
				add(pick(m.Usage.Memory))
			}
		}
	}
	swap := func(m *measured, add add) {
		switch {
		case m.Usage.Swap != nil:
			add(m.Usage.Swap.Usage)
		case m.Usage.Memory != nil: // a kernel that does not account swap
			add(0)
		}
	}
	return []metric{
		{"container_memory_usage_bytes", gauge, nil, of(func(m *cgroups.Memory) uint64 { return m.Usage }), "Current memory usage in bytes, including all memory regardless of when it was accessed."},
		{"container_memory_working_set_bytes", gauge, nil, of(func(m *cgroups.Memory) uint64 { return m.WorkingSet }), "Current working set in bytes."},
		{"container_memory_rss", gauge, nil, of(func(m *cgroups.Memory) uint64 { return m.RSS }), "Size of anonymous memory in bytes."},
		{"container_memory_cache", gauge, nil, of(func(m *cgroups.Memory) uint64 { return m.Cache }), "Number of bytes of page cache memory."},
		{"container_memory_mapped_file", gauge, nil, of(func(m *cgroups.Memory) uint64 { return m.MappedFile }), "Size of memory mapped files in bytes."},
		{"container_memory_kernel_usage", gauge, nil, of(func(m *cgroups.Memory) uint64 { return m.Kernel }), "Size of kernel memory allocated in bytes."},
		{"container_memory_swap", gauge, nil, swap, "Container swap usage in bytes."},
		{"container_memory_total_active_file_bytes", gauge, nil, of(func(m *cgroups.Memory) uint64 { return m.ActiveFile }), "Page cache that was used lately, in bytes."},
		{"container_memory_total_inactive_file_bytes", gauge, nil, of(func(m *cgroups.Memory) uint64 { return m.InactiveFile }), "Page cache that was not used lately, in bytes."},
		{"container_memory_active_anon_bytes", gauge, nil, of(func(m *cgroups.Memory) uint64 { return m.ActiveAnon }), "Anonymous memory that was used lately, in bytes."},
		{"container_memory_inactive_anon_bytes", gauge, nil, of(func(m *cgroups.Memory) uint64 { return m.InactiveAnon }), "Anonymous memory that was not used lately, in bytes."},
		{"container_memory_anon_thp_bytes", gauge, nil, of(func(m *cgroups.Memory) uint64 { return m.AnonHugepages }), "Anonymous memory in transparent huge pages, in bytes."},
		{"container_memory_shmem_thp_bytes", gauge, nil, of(func(m *cgroups.Memory) uint64 { return m.ShmemHugepages }), "Shared memory in transparent huge pages, in bytes. 0 on cgroup v1, which does not count it."},
		{"container_memory_file_thp_bytes", gauge, nil, of(func(m *cgroups.Memory) uint64 { return m.FileHugepages }), "Memory of files in transparent huge pages, in bytes. 0 on cgroup v1, which does not count it."},
		{"container_memory_failures_total", counter, []string{"failure_type", "scope"}, memoryFailures, "Cumulative count of page faults."},
	}
}

func memoryFailures(m *measured, add add) {
	if mem := m.Usage.Memory; mem != nil {
		add(mem.LocalPageFaults, "pgfault", "container")
		add(mem.LocalMajorFaults, "pgmajfault", "container")
		add(mem.PageFaults, "pgfault", "hierarchy")
		add(mem.MajorFaults, "pgmajfault", "hierarchy")
	}
}

func pressureMetrics() []metric {
	type pick func(u *cgroups.Usage) *cgroups.Pressure
	waiting := func(p pick) func(*measured, add) {
		return func(m *measured, add add) {
			if pressure := p(m.Usage); pressure != nil {
				add(wholeSeconds(pressure.Some.Total))
			}
		}
	}
	stalled := func(p pick) func(*measured, add) {
		return func(m *measured, add add) {
			if pressure := p(m.Usage); pressure != nil {
				add(wholeSeconds(pressure.Full.Total))
			}
		}
	}
	cpu := func(u *cgroups.Usage) *cgroups.Pressure { return u.CPUPressure }
	memory := func(u *cgroups.Usage) *cgroups.Pressure { return u.MemoryPressure }
	io := func(u *cgroups.Usage) *cgroups.Pressure { return u.IOPressure }
	return []metric{
		{"container_pressure_cpu_stalled_seconds_total", counter, nil, stalled(cpu), "Total time in which no task of the container could go on for want of CPU, in seconds."},
		{"container_pressure_cpu_waiting_seconds_total", counter, nil, waiting(cpu), "Total time in which some task of the container waited for CPU, in seconds."},
		{"container_pressure_memory_stalled_seconds_total", counter, nil, stalled(memory), "Total time in which no task of the container could go on for want of memory, in seconds."},
		{"container_pressure_memory_waiting_seconds_total", counter, nil, waiting(memory), "Total time in which some task of the container waited for memory, in seconds."},
		{"container_pressure_io_stalled_seconds_total", counter, nil, stalled(io), "Total time in which no task of the container could go on for waiting for I/O, in seconds."},
		{"container_pressure_io_waiting_seconds_total", counter, nil, waiting(io), "Total time in which some task of the container waited for I/O, in seconds."},
	}
}

func taskMetrics() []metric {
	of := func(pick func(p *cgroups.Pids) uint64) func(*measured, add) {
		return func(m *measured, add add) {
			if m.Usage.Pids != nil {
				add(pick(m.Usage.Pids))
			}
		}
	}
	return []metric{
		{"container_threads", gauge, nil, of(func(p *cgroups.Pids) uint64 { return p.Current }), "Number of threads running inside the container."},
		{"container_threads_max", gauge, nil, of(func(p *cgroups.Pids) uint64 { return orZero(p.Limit) }), "Maximum number of threads allowed inside the container, infinity if value is zero."},
	}
}

// orZero tells "no limit" as cAdvisor does.
func orZero(limit uint64) uint64 {
	if limit == cgroups.Unlimited {
		return 0
	}
	return limit
}

// eventMetrics tells the highest usage that is known, where the kernel does not keep it (cgroup v2 before Linux 5.19).
func eventMetrics() []metric {
	peak := func(m *measured, add add) {
		if m.Usage.Memory != nil {
			add(max(m.Details.Events.Peak, m.Usage.Memory.Usage))
		}
	}
	return []metric{
		{"container_memory_max_usage_bytes", gauge, nil, peak, "Maximum memory usage recorded in bytes."},
		{"container_memory_failcnt", counter, nil, func(m *measured, add add) { add(m.Details.Events.Failures) }, "Number of times that memory usage hit the limit."},
		{"container_oom_events_total", counter, nil, func(m *measured, add add) { add(m.Details.Events.OOMKills) }, "Count of processes of the container that were killed for want of memory."},
	}
}

func specMetrics() []metric {
	of := func(pick func(l cgroups.Limits) uint64) func(*measured, add) {
		return func(m *measured, add add) { add(pick(m.Details.Limits)) }
	}
	quota := func(m *measured, add add) {
		if q := m.Details.Limits.CPUQuota; q >= 0 {
			add(uint64(q))
		}
	}
	return []metric{
		{"container_spec_cpu_period", gauge, nil, of(func(l cgroups.Limits) uint64 { return l.CPUPeriod }), "CPU period of the container in microseconds."},
		{"container_spec_cpu_quota", gauge, nil, quota, "CPU quota of the container in microseconds, absent without one."},
		{"container_spec_cpu_shares", gauge, nil, of(func(l cgroups.Limits) uint64 { return l.CPUShares }), "CPU share of the container."},
		{"container_spec_memory_limit_bytes", gauge, nil, of(func(l cgroups.Limits) uint64 { return orZero(l.Memory) }), "Memory limit for the container, 0 without one."},
		{"container_spec_memory_reservation_limit_bytes", gauge, nil, of(func(l cgroups.Limits) uint64 { return orZero(l.Reservation) }), "Memory reservation limit for the container, 0 without one."},
		{"container_spec_memory_swap_limit_bytes", gauge, nil, of(func(l cgroups.Limits) uint64 { return orZero(l.MemorySwap) }), "Limit of memory and swap together for the container, 0 without one."},
	}
}

func hugepageMetrics() []metric {
	of := func(pick func(h cgroups.Hugepages) uint64) func(*measured, add) {
		return func(m *measured, add add) {
			for _, h := range m.Details.Hugepages {
				add(pick(h), h.Size)
			}
		}
	}
	size := []string{"pagesize"}
	return []metric{
		{"container_hugetlb_usage_bytes", gauge, size, of(func(h cgroups.Hugepages) uint64 { return h.Usage }), "Current usage of huge pages in bytes."},
		{"container_hugetlb_max_usage_bytes", gauge, size, of(func(h cgroups.Hugepages) uint64 { return max(h.Peak, h.Usage) }), "Maximum usage of huge pages recorded in bytes. The current one on cgroup v2, which records none."},
		{"container_hugetlb_failcnt", counter, size, of(func(h cgroups.Hugepages) uint64 { return h.Failures }), "Number of times that the usage of huge pages hit the limit."},
	}
}

func fileMetrics() []metric {
	of := func(labels []string, pick func(d *usage.Details) *uint64) func(*measured, add) {
		return func(m *measured, add add) {
			if n := pick(m.Details); n != nil {
				add(*n, labels...)
			}
		}
	}
	processes := func(m *measured, add add) { add(uint64(len(m.Details.Processes))) }
	return []metric{
		{"container_processes", gauge, nil, processes, "Number of processes running inside the container."},
		{"container_file_descriptors", gauge, nil, of(nil, func(d *usage.Details) *uint64 { return d.Files }), "Number of open file descriptors for the container."},
		{"container_sockets", gauge, nil, of(nil, func(d *usage.Details) *uint64 { return d.Sockets }), "Number of open sockets for the container, absent when there are too many files to look at."},
		{"container_ulimits_soft", gauge, []string{"ulimit"}, of([]string{"max_open_files"}, func(d *usage.Details) *uint64 { return d.MaxOpenFiles }), "Soft ulimit values for the container's first process."},
	}
}

// ioMetrics has a row for each device that the container used, and for the one that its root filesystem is on. The
// last ones are kept because cAdvisor and containerd have them: Linux counts them for whole devices only, since 5.0.
func ioMetrics() []metric {
	device := []string{"device"}
	of := func(pick func(d cgroups.IO) uint64) func(*measured, add) {
		return func(m *measured, add add) {
			for _, d := range ioDevices(m) {
				add(pick(d), deviceLabel(d.Name))
			}
		}
	}
	zero := of(func(cgroups.IO) uint64 { return 0 })
	const uncounted = " 0: Linux does not count it for containers."
	return []metric{
		{"container_fs_reads_bytes_total", counter, device, of(func(d cgroups.IO) uint64 { return d.ReadBytes }), "Cumulative count of bytes read."},
		{"container_fs_reads_total", counter, device, of(func(d cgroups.IO) uint64 { return d.Reads }), "Cumulative count of reads completed."},
		{"container_fs_sector_reads_total", counter, device, of(func(d cgroups.IO) uint64 { return d.ReadBytes / sector }), "Cumulative count of sectors read, of 512 bytes."},
		{"container_fs_writes_bytes_total", counter, device, of(func(d cgroups.IO) uint64 { return d.WriteBytes }), "Cumulative count of bytes written."},
		{"container_fs_writes_total", counter, device, of(func(d cgroups.IO) uint64 { return d.Writes }), "Cumulative count of writes completed."},
		{"container_fs_sector_writes_total", counter, device, of(func(d cgroups.IO) uint64 { return d.WriteBytes / sector }), "Cumulative count of sectors written, of 512 bytes."},
		{"container_blkio_device_usage_total", counter, []string{"device", "major", "minor", "operation"}, blkio, "Cumulative count of bytes moved from and to a block device."},
		{"container_fs_reads_merged_total", counter, device, zero, "Cumulative count of reads merged." + uncounted},
		{"container_fs_read_seconds_total", counter, device, zero, "Cumulative count of seconds spent reading." + uncounted},
		{"container_fs_writes_merged_total", counter, device, zero, "Cumulative count of writes merged." + uncounted},
		{"container_fs_write_seconds_total", counter, device, zero, "Cumulative count of seconds spent writing." + uncounted},
		{"container_fs_io_current", gauge, device, zero, "Number of I/Os currently in progress." + uncounted},
		{"container_fs_io_time_seconds_total", counter, device, zero, "Cumulative count of seconds spent doing I/Os." + uncounted},
		{"container_fs_io_time_weighted_seconds_total", counter, device, zero, "Cumulative weighted I/O time in seconds." + uncounted},
	}
}

// sector is the kernel's unit of disk space, in bytes, whatever the disk's own is.
const sector = 512

// ioDevices adds the root filesystem's device when nothing was read or written there yet.
func ioDevices(m *measured) []cgroups.IO {
	for _, d := range m.Details.IO {
		if deviceLabel(d.Name) == m.disk.device {
			return m.Details.IO
		}
	}
	if m.disk.device == "" {
		return m.Details.IO
	}
	return append([]cgroups.IO{{Name: m.disk.device[len("/dev/"):], Major: m.disk.major, Minor: m.disk.minor}}, m.Details.IO...)
}

func blkio(m *measured, add add) {
	for _, d := range ioDevices(m) {
		major, minor := strconv.FormatUint(d.Major, 10), strconv.FormatUint(d.Minor, 10)
		add(d.ReadBytes, deviceLabel(d.Name), major, minor, "Read")
		add(d.WriteBytes, deviceLabel(d.Name), major, minor, "Write")
	}
}

func diskMetrics() []metric {
	device := []string{"device"}
	of := func(pick func(d diskSize) uint64) func(*measured, add) {
		return func(m *measured, add add) { add(pick(m.disk), m.disk.device) }
	}
	used := func(m *measured, add add) {
		if m.Writable != nil {
			add(m.Writable.Bytes, m.disk.device)
		}
	}
	return []metric{
		{"container_fs_usage_bytes", gauge, device, used, "Number of bytes that the container's writable layer takes on this filesystem."},
		{"container_fs_limit_bytes", gauge, device, of(func(d diskSize) uint64 { return d.bytes }), "Number of bytes that can be consumed by the container on this filesystem."},
		{"container_fs_inodes_total", gauge, device, of(func(d diskSize) uint64 { return d.inodes }), "Number of inodes of this filesystem."},
		{"container_fs_inodes_free", gauge, device, of(func(d diskSize) uint64 { return d.inodesFree }), "Number of free inodes of this filesystem."},
	}
}

func networkMetrics() []metric {
	of := func(pick func(i usage.Interface) uint64) func(*measured, add) {
		return func(m *measured, add add) {
			if m.network.Default != nil {
				add(pick(*m.network.Default), m.network.Default.Name)
			}
			for _, i := range m.network.Others {
				add(pick(i), i.Name)
			}
		}
	}
	name := []string{"interface"}
	return []metric{
		{"container_network_receive_bytes_total", counter, name, of(func(i usage.Interface) uint64 { return i.RxBytes }), "Cumulative count of bytes received."},
		{"container_network_receive_packets_total", counter, name, of(func(i usage.Interface) uint64 { return i.RxPackets }), "Cumulative count of packets received."},
		{"container_network_receive_packets_dropped_total", counter, name, of(func(i usage.Interface) uint64 { return i.RxDropped }), "Cumulative count of packets dropped while receiving."},
		{"container_network_receive_errors_total", counter, name, of(func(i usage.Interface) uint64 { return i.RxErrors }), "Cumulative count of errors encountered while receiving."},
		{"container_network_transmit_bytes_total", counter, name, of(func(i usage.Interface) uint64 { return i.TxBytes }), "Cumulative count of bytes transmitted."},
		{"container_network_transmit_packets_total", counter, name, of(func(i usage.Interface) uint64 { return i.TxPackets }), "Cumulative count of packets transmitted."},
		{"container_network_transmit_packets_dropped_total", counter, name, of(func(i usage.Interface) uint64 { return i.TxDropped }), "Cumulative count of packets dropped while transmitting."},
		{"container_network_transmit_errors_total", counter, name, of(func(i usage.Interface) uint64 { return i.TxErrors }), "Cumulative count of errors encountered while transmitting."},
	}
}
