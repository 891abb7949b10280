package cgroups

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
)

// Limits are those of a group itself; the groups above it may have lower ones.
type Limits struct {
	// CPUShares is the weight of v1, from 2 to 262144. On v2 it is converted from CPUWeight, which is 0 on v1.
	CPUShares, CPUWeight uint64
	// CPUQuota is the CPU time in each CPUPeriod, both in microseconds, -1 for no limit.
	CPUQuota  int64
	CPUPeriod uint64
	// CPUs and Mems are lists such as "0-2,4", "" for those of the group above.
	CPUs, Mems string
	// Memory, Reservation and MemorySwap are in bytes, or Unlimited. MemorySwap bounds the sum of memory and swap; it
	// is 0 where swap is not accounted.
	Memory, Reservation, MemorySwap uint64
	Pids                            uint64
	// Hugepages are in bytes by size, e.g. "2MB".
	Hugepages map[string]uint64
}

// Limits returns the group's current limits. Errors are those of Read.
func (g *Group) Limits() (Limits, error) {
	if err := g.begin(); err != nil {
		return Limits{}, err
	}
	defer g.end()
	l, err := g.limits()
	if err != nil {
		return Limits{}, fmt.Errorf("limits of cgroup %s: %w", g.path, err)
	}
	return l, nil
}

func (g *Group) limits() (Limits, error) {
	l := Limits{CPUQuota: -1, Hugepages: map[string]uint64{}}
	for _, part := range []func(*Limits) error{g.cpuLimits, g.cpusetLimits, g.memoryLimits} {
		if err := part(&l); err != nil {
			return l, err
		}
	}
	var err error
	if l.Pids, err = g.places["pids"].value("pids.max", Unlimited); err != nil {
		return l, err
	}
	pages, err := g.hugepages()
	for _, h := range pages {
		l.Hugepages[h.Size] = h.Limit
	}
	return l, err
}

// Unified returns the text of one of the group's files on v2, "" if it does not have the file.
func (g *Group) Unified(name string) (string, error) {
	if err := g.begin(); err != nil {
		return "", err
	}
	defer g.end()
	if filepath.Base(name) != name {
		return "", fmt.Errorf("%w: %q is not the name of a file", errdefs.ErrInvalidArgument, name)
	}
	return g.unified.text(name)
}

func (g *Group) cpuLimits(l *Limits) error {
	p := g.places["cpu"]
	if p.v2 {
		return p.cpuLimitsV2(l)
	}
	var err error
	if l.CPUShares, err = p.value("cpu.shares", 0); err != nil {
		return err
	}
	if l.CPUPeriod, err = p.value("cpu.cfs_period_us", 0); err != nil {
		return err
	}
	quota, err := p.text(quotaV1)
	if !strings.HasPrefix(quota, "-") && quota != "" {
		l.CPUQuota = int64(number([]byte(quota)))
	}
	return err
}

func (p place) cpuLimitsV2(l *Limits) error {
	var err error
	if l.CPUWeight, err = p.value("cpu.weight", 0); err != nil {
		return err
	}
	l.CPUShares = SharesOf(l.CPUWeight)
	bandwidth, err := p.text("cpu.max") // "max 100000"
	quota, period, _ := strings.Cut(bandwidth, " ")
	if n := number([]byte(quota)); n != Unlimited && quota != "" {
		l.CPUQuota = int64(n)
	}
	l.CPUPeriod = number([]byte(period))
	return err
}

func (g *Group) cpusetLimits(l *Limits) error {
	p := g.places["cpuset"]
	var err error
	if l.CPUs, err = p.text("cpuset.cpus"); err != nil {
		return err
	}
	l.Mems, err = p.text("cpuset.mems")
	return err
}

func (g *Group) memoryLimits(l *Limits) error {
	p := g.places["memory"]
	names := choose(p.v2,
		[...]string{"memory.max", "memory.low", "memory.swap.max"},
		[...]string{"memory.limit_in_bytes", "memory.soft_limit_in_bytes", "memory.memsw.limit_in_bytes"})
	var err error
	if l.Memory, err = p.value(names[0], Unlimited); err != nil {
		return err
	}
	if l.Reservation, err = p.value(names[1], Unlimited); err != nil {
		return err
	}
	text, err := p.text(names[2])
	if err != nil || text == "" {
		return err
	}
	l.MemorySwap = number([]byte(text))
	if p.v2 && l.MemorySwap != Unlimited { // v2 bounds swap alone
		l.MemorySwap = sum(l.MemorySwap, l.Memory)
	}
	return nil
}

// sum is Unlimited if a or b is.
func sum(a, b uint64) uint64 {
	if a == Unlimited || b == Unlimited {
		return Unlimited
	}
	return a + b
}

// The ranges of v1's shares and v2's weight.
const (
	minShares, maxShares = 2, 262144
	minWeight, maxWeight = 1, 10000
)

// WeightOf returns the v2 weight for v1 shares by the conversion of OCI runtimes since 2025
// (opencontainers/cgroups#20): a curve through 2 -> 1, 1024 -> 100 and 262144 -> 10000.
func WeightOf(shares uint64) uint64 {
	switch {
	case shares <= minShares:
		return minWeight
	case shares >= maxShares:
		return maxWeight
	}
	l := math.Log2(float64(shares))
	return uint64(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
}

// OldWeightOf returns the v2 weight by the linear conversion that runtimes used before.
func OldWeightOf(shares uint64) uint64 {
	shares = min(max(shares, minShares), maxShares)
	return minWeight + (shares-minShares)*(maxWeight-minWeight)/(maxShares-minShares)
}

// SharesOf is the inverse of WeightOf: the least shares with this weight; 0 for 0.
func SharesOf(weight uint64) uint64 {
	if weight == 0 {
		return 0
	}
	low, high := uint64(minShares), uint64(maxShares)
	for low < high {
		middle := (low + high) / 2
		if WeightOf(middle) < weight {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}
