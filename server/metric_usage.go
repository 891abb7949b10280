package server

import (
	"github.com/podd-project/podd/oci/cgroups"
)

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
		{"container_cpu_usage_seconds_total", counter, []string{"cpu"},
			of(total, func(c *cgroups.CPU) uint64 { return wholeSeconds(c.Total) }),
			"Cumulative CPU time consumed, in seconds."},
		{"container_cpu_user_seconds_total", counter, nil,
			of(nil, func(c *cgroups.CPU) uint64 { return wholeSeconds(c.User) }),
			"Cumulative user CPU time consumed, in seconds."},
		{"container_cpu_system_seconds_total", counter, nil,
			of(nil, func(c *cgroups.CPU) uint64 { return wholeSeconds(c.System) }),
			"Cumulative system CPU time consumed, in seconds."},
		{"container_cpu_cfs_periods_total", counter, nil,
			of(nil, func(c *cgroups.CPU) uint64 { return c.Periods }),
			"Number of elapsed enforcement period intervals."},
		{"container_cpu_cfs_throttled_periods_total", counter, nil,
			of(nil, func(c *cgroups.CPU) uint64 { return c.Throttled }),
			"Number of throttled period intervals."},
		{"container_cpu_cfs_throttled_seconds_total", counter, nil,
			of(nil, func(c *cgroups.CPU) uint64 { return wholeSeconds(c.ThrottledTime) }),
			"Total time the container has been throttled, in seconds."},
		{"container_cpu_cfs_burst_periods_total", counter, nil,
			of(nil, func(c *cgroups.CPU) uint64 { return c.Bursts }),
			"Number of periods in which the container used more than its quota."},
		{"container_cpu_cfs_burst_seconds_total", counter, nil,
			of(nil, func(c *cgroups.CPU) uint64 { return wholeSeconds(c.BurstTime) }),
			"Total CPU time used beyond the quota, in seconds."},
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
		case m.Usage.Memory != nil: // the kernel does not account swap
			add(0)
		}
	}
	return []metric{
		{"container_memory_usage_bytes", gauge, nil, of(func(m *cgroups.Memory) uint64 { return m.Usage }),
			"Current memory usage in bytes, including all memory regardless of when it was accessed."},
		{"container_memory_working_set_bytes", gauge, nil,
			of(func(m *cgroups.Memory) uint64 { return m.WorkingSet }),
			"Current working set in bytes."},
		{"container_memory_rss", gauge, nil, of(func(m *cgroups.Memory) uint64 { return m.RSS }),
			"Size of anonymous memory in bytes."},
		{"container_memory_cache", gauge, nil, of(func(m *cgroups.Memory) uint64 { return m.Cache }),
			"Number of bytes of page cache memory."},
		{"container_memory_mapped_file", gauge, nil,
			of(func(m *cgroups.Memory) uint64 { return m.MappedFile }),
			"Size of memory mapped files in bytes."},
		{"container_memory_kernel_usage", gauge, nil, of(func(m *cgroups.Memory) uint64 { return m.Kernel }),
			"Size of kernel memory allocated in bytes."},
		{"container_memory_swap", gauge, nil, swap, "Container swap usage in bytes."},
		{"container_memory_total_active_file_bytes", gauge, nil,
			of(func(m *cgroups.Memory) uint64 { return m.ActiveFile }),
			"Recently used page cache, in bytes."},
		{"container_memory_total_inactive_file_bytes", gauge, nil,
			of(func(m *cgroups.Memory) uint64 { return m.InactiveFile }),
			"Page cache that was not recently used, in bytes."},
		{"container_memory_active_anon_bytes", gauge, nil,
			of(func(m *cgroups.Memory) uint64 { return m.ActiveAnon }),
			"Recently used anonymous memory, in bytes."},
		{"container_memory_inactive_anon_bytes", gauge, nil,
			of(func(m *cgroups.Memory) uint64 { return m.InactiveAnon }),
			"Anonymous memory that was not recently used, in bytes."},
		{"container_memory_anon_thp_bytes", gauge, nil,
			of(func(m *cgroups.Memory) uint64 { return m.AnonHugepages }),
			"Anonymous memory in transparent huge pages, in bytes."},
		{"container_memory_shmem_thp_bytes", gauge, nil,
			of(func(m *cgroups.Memory) uint64 { return m.ShmemHugepages }),
			"Shared memory in transparent huge pages, in bytes. 0 on cgroup v1, which does not count it."},
		{"container_memory_file_thp_bytes", gauge, nil,
			of(func(m *cgroups.Memory) uint64 { return m.FileHugepages }),
			"Memory of files in transparent huge pages, in bytes. 0 on cgroup v1, which does not count it."},
		{"container_memory_failures_total", counter, []string{"failure_type", "scope"}, memoryFailures,
			"Cumulative count of page faults."},
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
		{"container_pressure_cpu_stalled_seconds_total", counter, nil, stalled(cpu),
			"Total time in which no task of the container made progress for lack of CPU, in seconds."},
		{"container_pressure_cpu_waiting_seconds_total", counter, nil, waiting(cpu),
			"Total time in which at least one task of the container waited for CPU, in seconds."},
		{"container_pressure_memory_stalled_seconds_total", counter, nil, stalled(memory),
			"Total time in which no task of the container made progress for lack of memory, in seconds."},
		{"container_pressure_memory_waiting_seconds_total", counter, nil, waiting(memory),
			"Total time in which at least one task of the container waited for memory, in seconds."},
		{"container_pressure_io_stalled_seconds_total", counter, nil, stalled(io),
			"Total time in which all tasks of the container waited for I/O, in seconds."},
		{"container_pressure_io_waiting_seconds_total", counter, nil, waiting(io),
			"Total time in which at least one task of the container waited for I/O, in seconds."},
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
		{"container_threads", gauge, nil, of(func(p *cgroups.Pids) uint64 { return p.Current }),
			"Number of threads running inside the container."},
		{"container_threads_max", gauge, nil, of(func(p *cgroups.Pids) uint64 { return orZero(p.Limit) }),
			"Maximum number of threads allowed inside the container, infinity if value is zero."},
	}
}
