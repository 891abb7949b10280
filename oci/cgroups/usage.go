package cgroups

import (
	"math"
	"time"
)

// Unlimited means "no limit".
const Unlimited = math.MaxUint64

// Usage is the usage of a group with all groups below it. Parts that the kernel does not report are nil.
type Usage struct {
	At     time.Time
	CPU    *CPU
	Memory *Memory
	Swap   *Swap
	Pids   *Pids
	// CPUPressure, MemoryPressure and IOPressure are the group's PSI. On a hybrid machine they are set if the runtime
	// has created a group in the v2 hierarchy, too.
	CPUPressure, MemoryPressure, IOPressure *Pressure
}

// CPU is CPU time since the group was created.
type CPU struct {
	Total, User, System time.Duration
	// Periods is how many periods of the bandwidth limit have passed, Throttled in how many of them the group was
	// stopped, ThrottledTime how long.
	Periods, Throttled uint64
	ThrottledTime      time.Duration
	// Bursts is in how many periods the group went over its quota, BurstTime by how much.
	Bursts    uint64
	BurstTime time.Duration
}

// Memory is in bytes.
type Memory struct {
	// Usage is all memory charged to the group, WorkingSet is Usage without inactive file cache.
	Usage, WorkingSet uint64
	// Limit is Unlimited if only the groups above have a limit.
	Limit uint64
	// RSS is anonymous memory, Cache is memory of files, including shared memory.
	RSS, Cache, MappedFile                       uint64
	ActiveAnon, InactiveAnon                     uint64
	ActiveFile, InactiveFile                     uint64
	AnonHugepages, ShmemHugepages, FileHugepages uint64
	PageFaults, MajorFaults                      uint64 // since the group was created; PageFaults includes the major ones
	LocalPageFaults, LocalMajorFaults            uint64 // of processes in the group itself
	Kernel                                       uint64
	swap                                         uint64
	hasSwap                                      bool
}

// Swap is in bytes. Limit is the most that may be swapped out, or Unlimited.
type Swap struct{ Usage, Limit uint64 }

// Pids counts tasks, which are threads.
type Pids struct{ Current, Limit uint64 }

// Pressure is pressure stall information, see Documentation/accounting/psi.rst of the kernel: Some is the time in which
// at least one task waited, Full the time in which all did.
type Pressure struct{ Some, Full Stall }

// Stall has averages in percent over 10, 60 and 300 seconds.
type Stall struct {
	Avg10, Avg60, Avg300 float64
	Total                time.Duration
}

// Details are the values that are rarely read: their files are not kept open.
type Details struct {
	At     time.Time
	Events MemoryEvents
	IO     []IO
	// Hugepages has an entry for each size, in no order.
	Hugepages []Hugepages
	Limits    Limits
	// Processes are the ids of all processes in the group and below.
	Processes []int
}

// MemoryEvents are events of the group. Peak is the highest usage in bytes, 0 if the kernel does not record it;
// Failures is how often usage hit the limit; OOMKills is how many processes were killed for memory.
type MemoryEvents struct{ Peak, Failures, OOMKills uint64 }

// IO counts the operations on one block device.
type IO struct {
	Major, Minor uint64
	// Name is the name of the device, e.g. "sda", "" if it has none.
	Name                  string
	ReadBytes, WriteBytes uint64
	Reads, Writes         uint64
}

// Hugepages is the usage of pages of one size, e.g. "2MB", in bytes. Peak is 0 if the kernel does not record it.
type Hugepages struct {
	Size               string
	Usage, Peak, Limit uint64
}

// Add adds the usage of another group.
func (c *CPU) Add(o CPU) {
	c.Total += o.Total
	c.User += o.User
	c.System += o.System
	c.Periods += o.Periods
	c.Throttled += o.Throttled
	c.ThrottledTime += o.ThrottledTime
	c.Bursts += o.Bursts
	c.BurstTime += o.BurstTime
}

// Add adds the usage of another group, without the limit.
func (m *Memory) Add(o Memory) {
	for to, n := range map[*uint64]uint64{
		&m.Usage: o.Usage, &m.WorkingSet: o.WorkingSet, &m.RSS: o.RSS, &m.Cache: o.Cache, &m.MappedFile: o.MappedFile,
		&m.ActiveAnon: o.ActiveAnon, &m.InactiveAnon: o.InactiveAnon, &m.ActiveFile: o.ActiveFile,
		&m.InactiveFile:  o.InactiveFile,
		&m.AnonHugepages: o.AnonHugepages, &m.ShmemHugepages: o.ShmemHugepages, &m.FileHugepages: o.FileHugepages,
		&m.PageFaults: o.PageFaults, &m.MajorFaults: o.MajorFaults,
		&m.LocalPageFaults: o.LocalPageFaults, &m.LocalMajorFaults: o.LocalMajorFaults, &m.Kernel: o.Kernel,
	} {
		*to += n
	}
}
