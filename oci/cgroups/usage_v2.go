package cgroups

import (
	"bytes"
	"time"
)

// The files of cgroup v2: Documentation/admin-guide/cgroup-v2.rst of the kernel.

func cpuFilesV2() []fileParser {
	return []fileParser{{"cpu.stat", func(text []byte, u *Usage) {
		c := u.cpu()
		pairs(text, func(key []byte, n uint64) {
			micros := time.Duration(n) * time.Microsecond
			switch string(key) {
			case "usage_usec":
				c.Total = micros
			case "user_usec":
				c.User = micros
			case "system_usec":
				c.System = micros
			case "nr_periods":
				c.Periods = n
			case "nr_throttled":
				c.Throttled = n
			case "throttled_usec":
				c.ThrottledTime = micros
			case "nr_bursts":
				c.Bursts = n
			case "burst_usec":
				c.BurstTime = micros
			}
		})
	}}}
}

func memoryFilesV2() []fileParser {
	return []fileParser{
		{"memory.current", func(text []byte, u *Usage) { u.memory().Usage = number(text) }},
		{"memory.max", func(text []byte, u *Usage) { u.memory().Limit = number(text) }},
		{"memory.swap.current", func(text []byte, u *Usage) { u.swap().Usage = number(text) }},
		{"memory.swap.max", func(text []byte, u *Usage) { u.swap().Limit = number(text) }},
		{"memory.stat", memoryStatV2},
	}
}

func memoryStatV2(text []byte, u *Usage) {
	m := u.memory()
	var stacks, slab uint64
	pairs(text, func(key []byte, n uint64) {
		switch string(key) {
		case "anon":
			m.RSS = n
		case "file":
			m.Cache = n
		case "file_mapped":
			m.MappedFile = n
		case "anon_thp":
			m.AnonHugepages = n
		case "shmem_thp":
			m.ShmemHugepages = n
		case "file_thp":
			m.FileHugepages = n
		case "kernel":
			m.Kernel = n
		case "kernel_stack":
			stacks = n
		case "slab":
			slab = n
		case "pgfault":
			m.PageFaults, m.LocalPageFaults = n, n // v2 has only one counter
		case "pgmajfault":
			m.MajorFaults, m.LocalMajorFaults = n, n
		default:
			m.activity(key, n)
		}
	})
	if m.Kernel == 0 { // before Linux 5.18
		m.Kernel = stacks + slab
	}
}

func pressureFiles() []fileParser {
	return []fileParser{
		{"cpu.pressure", func(text []byte, u *Usage) { u.CPUPressure = pressure(text) }},
		{"memory.pressure", func(text []byte, u *Usage) { u.MemoryPressure = pressure(text) }},
		{"io.pressure", func(text []byte, u *Usage) { u.IOPressure = pressure(text) }},
	}
}

// pressure parses lines such as "some avg10=0.00 avg60=0.00 avg300=0.00 total=0", the other being "full".
func pressure(text []byte) *Pressure {
	p := &Pressure{}
	for line := range bytes.Lines(text) {
		kind, averages, _ := bytes.Cut(line, []byte(" "))
		switch string(kind) {
		case "some":
			p.Some = stall(averages)
		case "full":
			p.Full = stall(averages)
		}
	}
	return p
}

func stall(text []byte) Stall {
	var s Stall
	for field := range bytes.FieldsSeq(text) {
		key, value, _ := bytes.Cut(field, []byte("="))
		switch string(key) {
		case "avg10":
			s.Avg10 = percent(value)
		case "avg60":
			s.Avg60 = percent(value)
		case "avg300":
			s.Avg300 = percent(value)
		case "total":
			s.Total = time.Duration(number(value)) * time.Microsecond
		}
	}
	return s
}

// percent parses "12.34". Unlike strconv it needs no string and so no allocation.
func percent(text []byte) float64 {
	whole, hundredths, _ := bytes.Cut(text, []byte("."))
	return float64(number(whole)*100+number(hundredths)) / 100
}
