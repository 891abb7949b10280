package server

import (
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/sandbox/usage"
)

// orZero returns 0 for "no limit", as cAdvisor does.
func orZero(limit uint64) uint64 {
	if limit == cgroups.Unlimited {
		return 0
	}
	return limit
}

// eventMetrics: where the kernel records no peak memory usage (cgroup v2 before Linux 5.19), the current usage is the
// peak.
func eventMetrics() []metric {
	peak := func(m *measured, add add) {
		if m.Usage.Memory != nil {
			add(max(m.Details.Events.Peak, m.Usage.Memory.Usage))
		}
	}
	return []metric{
		{"container_memory_max_usage_bytes", gauge, nil, peak, "Maximum memory usage recorded in bytes."},
		{"container_memory_failcnt", counter, nil,
			func(m *measured, add add) { add(m.Details.Events.Failures) },
			"Number of times that memory usage hit the limit."},
		{"container_oom_events_total", counter, nil,
			func(m *measured, add add) { add(m.Details.Events.OOMKills) },
			"Count of processes of the container killed by the OOM killer."},
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
		{"container_spec_cpu_period", gauge, nil, of(func(l cgroups.Limits) uint64 { return l.CPUPeriod }),
			"CPU period of the container in microseconds."},
		{"container_spec_cpu_quota", gauge, nil, quota,
			"CPU quota of the container in microseconds, absent if unlimited."},
		{"container_spec_cpu_shares", gauge, nil, of(func(l cgroups.Limits) uint64 { return l.CPUShares }),
			"CPU share of the container."},
		{"container_spec_memory_limit_bytes", gauge, nil,
			of(func(l cgroups.Limits) uint64 { return orZero(l.Memory) }),
			"Memory limit for the container, 0 if unlimited."},
		{"container_spec_memory_reservation_limit_bytes", gauge, nil,
			of(func(l cgroups.Limits) uint64 { return orZero(l.Reservation) }),
			"Memory reservation limit for the container, 0 if unlimited."},
		{"container_spec_memory_swap_limit_bytes", gauge, nil,
			of(func(l cgroups.Limits) uint64 { return orZero(l.MemorySwap) }),
			"Limit of memory and swap together for the container, 0 if unlimited."},
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
		{"container_hugetlb_usage_bytes", gauge, size,
			of(func(h cgroups.Hugepages) uint64 { return h.Usage }),
			"Current usage of huge pages in bytes."},
		{"container_hugetlb_max_usage_bytes", gauge, size,
			of(func(h cgroups.Hugepages) uint64 { return max(h.Peak, h.Usage) }),
			"Maximum usage of huge pages recorded in bytes. On cgroup v2, which records none, the current usage."},
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
		{"container_file_descriptors", gauge, nil, of(nil, func(d *usage.Details) *uint64 { return d.Files }),
			"Number of open file descriptors for the container."},
		{"container_sockets", gauge, nil, of(nil, func(d *usage.Details) *uint64 { return d.Sockets }),
			"Number of open sockets for the container, absent when the container has too many open files to count."},
		{"container_ulimits_soft", gauge, []string{"ulimit"},
			of([]string{"max_open_files"}, func(d *usage.Details) *uint64 { return d.MaxOpenFiles }),
			"Soft ulimit values for the container's first process."},
	}
}
