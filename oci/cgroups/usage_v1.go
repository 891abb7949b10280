package cgroups

import (
	"bytes"
	"time"
)

// The files of cgroup v1: Documentation/admin-guide/cgroup-v1/{memory,cpuacct,pids}.rst and
// Documentation/scheduler/sched-bwc.rst of the kernel.

func cpuFilesV1() []fileParser {
	return []fileParser{{"cpu.stat", func(text []byte, u *Usage) {
		c := u.cpu()
		pairs(text, func(key []byte, n uint64) {
			switch string(key) {
			case "nr_periods":
				c.Periods = n
			case "nr_throttled":
				c.Throttled = n
			case "throttled_time":
				c.ThrottledTime = time.Duration(n)
			case "nr_bursts":
				c.Bursts = n
			case "burst_time":
				c.BurstTime = time.Duration(n)
			}
		})
	}}}
}

func cpuacctFilesV1() []fileParser {
	return []fileParser{
		{"cpuacct.usage", func(text []byte, u *Usage) { u.cpu().Total = time.Duration(number(text)) }},
		{"cpuacct.usage_user", func(text []byte, u *Usage) { u.cpu().User = time.Duration(number(text)) }},
		{"cpuacct.usage_sys", func(text []byte, u *Usage) { u.cpu().System = time.Duration(number(text)) }},
	}
}

func memoryFilesV1() []fileParser {
	return []fileParser{
		{"memory.usage_in_bytes", func(text []byte, u *Usage) { u.memory().Usage = number(text) }},
		{"memory.limit_in_bytes", func(text []byte, u *Usage) { u.memory().Limit = number(text) }},
		{"memory.kmem.usage_in_bytes", func(text []byte, u *Usage) { u.memory().Kernel = number(text) }},
		{"memory.stat", memoryStatV1},
		{"memory.memsw.limit_in_bytes", func(text []byte, u *Usage) {
			u.swap().Limit = number(text)
			u.memory().hasSwap = true
		}},
	}
}

// memoryStatV1 reads the totals, which include the groups below.
func memoryStatV1(text []byte, u *Usage) {
	m := u.memory()
	pairs(text, func(key []byte, n uint64) {
		name, total := bytes.CutPrefix(key, []byte("total_"))
		if !total {
			m.localFault(key, n)
			return
		}
		switch string(name) {
		case "rss":
			m.RSS = n
		case "cache":
			m.Cache = n
		case "mapped_file":
			m.MappedFile = n
		case "rss_huge":
			m.AnonHugepages = n
		case "swap":
			m.swap = n
		case "pgfault":
			m.PageFaults = n
		case "pgmajfault":
			m.MajorFaults = n
		default:
			m.activity(name, n)
		}
	})
}

func (m *Memory) localFault(key []byte, n uint64) {
	switch string(key) {
	case "pgfault":
		m.LocalPageFaults = n
	case "pgmajfault":
		m.LocalMajorFaults = n
	}
}

// activity sets the values that have the same names in v1 and v2.
func (m *Memory) activity(name []byte, n uint64) {
	switch string(name) {
	case "active_anon":
		m.ActiveAnon = n
	case "inactive_anon":
		m.InactiveAnon = n
	case "active_file":
		m.ActiveFile = n
	case "inactive_file":
		m.InactiveFile = n
	}
}

func pidsFiles() []fileParser {
	return []fileParser{
		{"pids.current", func(text []byte, u *Usage) { u.pids().Current = number(text) }},
		{"pids.max", func(text []byte, u *Usage) { u.pids().Limit = number(text) }},
	}
}
