package cgroups

import (
	"math"
	"time"
)

// Unlimited stands for "no limit".
const Unlimited = math.MaxUint64

// Usage is what a group with all groups below it uses at one moment. What the kernel does not tell is nil.
type Usage struct {
	At     time.Time
	CPU    *CPU
	Memory *Memory
	Swap   *Swap
	Pids   *Pids
	// CPUPressure, MemoryPressure and IOPressure are the group's PSI. On a mixed machine it is there when the
	// runtime has put the container into a group of the v2 hierarchy, too.
	CPUPressure, MemoryPressure, IOPressure *Pressure
}

// CPU is time spent since the group was made.
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
	// Usage is all that is charged to the group, WorkingSet without the file cache that was not used lately.
	Usage, WorkingSet uint64
	// Limit is Unlimited when only the groups above it limit it.
	Limit uint64
	// RSS is anonymous memory, Cache is memory of files, including shared memory.
	RSS, Cache, MappedFile                       uint64
	ActiveAnon, InactiveAnon                     uint64
	ActiveFile, InactiveFile                     uint64
	AnonHugepages, ShmemHugepages, FileHugepages uint64
	PageFaults, MajorFaults                      uint64 // since the group was made; PageFaults has the major ones in it
	LocalPageFaults, LocalMajorFaults            uint64 // those of processes in the group itself
	Kernel                                       uint64
	swap                                         uint64
	hasSwap                                      bool
}

// Swap is in bytes. Limit is what may be swapped out, Unlimited when nothing limits it.
type Swap struct{ Usage, Limit uint64 }

// Pids counts tasks, which are threads.
type Pids struct{ Current, Limit uint64 }

// Pressure is pressure stall information, see Documentation/accounting/psi.rst: Some is time in which some task
// waited, Full in which all did.
type Pressure struct{ Some, Full Stall }

// Stall has averages in percent over 10, 60 and 300 seconds.
type Stall struct {
	Avg10, Avg60, Avg300 float64
	Total                time.Duration
}

// Details is what is read seldom: it needs files that are not kept open.
type Details struct {
	At     time.Time
	Events MemoryEvents
	IO     []IO
	// Hugepages has an entry for each size, in no order.
	Hugepages []Hugepages
	Limits    Limits
	// Processes are the ids of all processes in the group and below it.
	Processes []int
}

// MemoryEvents tells what has happened to the group. Peak is the highest usage in bytes, 0 where the kernel does not
// keep it; Failures is how often usage hit the limit; OOMKills how many processes were killed for memory.
type MemoryEvents struct{ Peak, Failures, OOMKills uint64 }

// IO is what was done to one block device.
type IO struct {
	Major, Minor uint64
	// Name is the device's, e.g. "sda", "" when it has none.
	Name                  string
	ReadBytes, WriteBytes uint64
	Reads, Writes         uint64
}

// Hugepages is the use of pages of one size, e.g. "2MB", in bytes. Peak is 0 where the kernel does not keep it.
type Hugepages struct {
	Size                         string
	Usage, Peak, Limit, Failures uint64
}

// Add adds what another group uses.
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

// Add adds what another group uses. The limit stays.
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
