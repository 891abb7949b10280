package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Update changes the limits that r names and no others. systemd may reset the limits of its units. Update stops at the
// first write that fails.
//
// Errors: errdefs.ErrNotFound if the group is gone, ErrFailedPrecondition if it does not have the controller or its
// usage is above the new limit, ErrInvalidArgument if the kernel refuses a value.
func (g *Group) Update(r *specs.LinuxResources) error {
	if err := g.begin(); err != nil {
		return err
	}
	defer g.end()
	for _, write := range []func(*specs.LinuxResources) error{
		g.setCPU, g.setMemory, g.setHugepages, g.setPids, g.setUnified,
	} {
		if err := write(r); err != nil {
			return fmt.Errorf("update cgroup %s: %w", g.path, err)
		}
	}
	return nil
}

func (g *Group) setCPU(r *specs.LinuxResources) error {
	if r.CPU == nil {
		return nil
	}
	p := g.places["cpu"]
	if err := choose(p.v2, p.setCPUV2, p.setCPUV1)(r.CPU); err != nil {
		return err
	}
	set := g.places["cpuset"]
	if r.CPU.Cpus != "" {
		if err := set.write("cpuset.cpus", r.CPU.Cpus); err != nil {
			return err
		}
	}
	if r.CPU.Mems != "" {
		return set.write("cpuset.mems", r.CPU.Mems)
	}
	return nil
}

func (p place) setCPUV1(r *specs.LinuxCPU) error {
	if r.Shares != nil {
		if err := p.write("cpu.shares", decimal(*r.Shares)); err != nil {
			return err
		}
	}
	quota := func() error {
		if r.Quota == nil {
			return nil
		}
		return p.write(quotaV1, decimal(*r.Quota))
	}
	if r.Period == nil {
		return quota()
	}
	// The kernel checks quota and period together at each write: one of both orders is valid.
	if err := p.write("cpu.cfs_period_us", decimal(*r.Period)); err == nil {
		return quota()
	} else if r.Quota == nil {
		return err
	}
	if err := quota(); err != nil {
		return err
	}
	return p.write("cpu.cfs_period_us", decimal(*r.Period))
}

func (p place) setCPUV2(r *specs.LinuxCPU) error {
	if r.Shares != nil {
		if err := p.write("cpu.weight", decimal(WeightOf(*r.Shares))); err != nil {
			return err
		}
	}
	if r.Quota == nil && r.Period == nil {
		return nil
	}
	var now Limits
	if err := p.cpuLimitsV2(&now); err != nil {
		return err
	}
	quota, period := now.CPUQuota, now.CPUPeriod
	if r.Quota != nil {
		quota = *r.Quota
	}
	if r.Period != nil {
		period = *r.Period
	}
	return p.write("cpu.max", limit(quota)+" "+decimal(period))
}

func (g *Group) setMemory(r *specs.LinuxResources) error {
	m := r.Memory
	if m == nil {
		return nil
	}
	p := g.places["memory"]
	if p.v2 {
		return p.setMemoryV2(m)
	}
	writes := []func() error{
		func() error { return p.writeLimitV1("memory.limit_in_bytes", m.Limit) },
		func() error { return p.writeLimitV1("memory.memsw.limit_in_bytes", m.Swap) },
		func() error { return p.writeLimitV1("memory.soft_limit_in_bytes", m.Reservation) },
	}
	both, err := p.value("memory.memsw.limit_in_bytes", Unlimited)
	if err != nil {
		return err
	}
	if m.Limit != nil && m.Swap != nil && unsigned(*m.Limit) > both { // memory+swap must not be below memory at any time
		writes[0], writes[1] = writes[1], writes[0]
	}
	for _, write := range writes {
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}

func (p place) setMemoryV2(m *specs.LinuxMemory) error {
	if m.Swap != nil {
		swap := *m.Swap
		if swap >= 0 && m.Limit != nil {
			swap -= max(0, *m.Limit)
		}
		if err := p.write("memory.swap.max", limit(swap)); err != nil {
			return err
		}
	}
	if m.Limit != nil {
		if err := p.write("memory.max", limit(*m.Limit)); err != nil {
			return err
		}
	}
	if m.Reservation != nil {
		return p.write("memory.low", limit(*m.Reservation))
	}
	return nil
}

func (p place) writeLimitV1(name string, value *int64) error {
	if value == nil {
		return nil
	}
	return p.write(name, decimal(*value))
}

// setHugepages limits the use of pages and, if the kernel supports it, their reservation by mmap(2), as runtimes do.
func (g *Group) setHugepages(r *specs.LinuxResources) error {
	p := g.places["hugetlb"]
	name := choose(p.v2, ".max", ".limit_in_bytes")
	for _, h := range r.HugepageLimits {
		if err := p.write("hugetlb."+h.Pagesize+name, decimal(h.Limit)); err != nil {
			return err
		}
		if err := p.write("hugetlb."+h.Pagesize+".rsvd"+name, decimal(h.Limit)); err != nil &&
			!errdefs.IsFailedPrecondition(err) {
			return err
		}
	}
	return nil
}

func (g *Group) setPids(r *specs.LinuxResources) error {
	if r.Pids == nil || r.Pids.Limit == nil {
		return nil
	}
	return g.places["pids"].write("pids.max", limit(*r.Pids.Limit))
}

func (g *Group) setUnified(r *specs.LinuxResources) error {
	for _, key := range slices.Sorted(maps.Keys(r.Unified)) {
		if filepath.Base(key) != key {
			return fmt.Errorf("%w: %q is not the name of a file", errdefs.ErrInvalidArgument, key)
		}
		if err := g.unified.write(key, r.Unified[key]); err != nil {
			return err
		}
	}
	return nil
}

// write never creates a file: one that does not exist means that the group does not have the controller.
func (p place) write(name, value string) error {
	if p.dir == "" {
		return fmt.Errorf("%w: %s: the group does not have this controller", errdefs.ErrFailedPrecondition, name)
	}
	f, err := os.OpenFile(filepath.Join(p.dir, name), os.O_WRONLY|os.O_TRUNC, 0)
	if err == nil {
		_, err = f.WriteString(value)
		err = errors.Join(err, f.Close())
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist) && isDir(p.dir):
		return fmt.Errorf("%w: the group does not have this controller: %w", errdefs.ErrFailedPrecondition, err)
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%w: usage is above %q: %w", errdefs.ErrFailedPrecondition, value, err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ERANGE):
		return fmt.Errorf("%w: the kernel refuses %q: %w", errdefs.ErrInvalidArgument, value, err)
	}
	return notFound(err)
}

func decimal[T int64 | uint64](n T) string {
	if n < 0 {
		return "-1"
	}
	return strconv.FormatUint(uint64(n), 10)
}

// limit formats a limit for v2.
func limit(n int64) string {
	if n < 0 {
		return "max"
	}
	return decimal(n)
}

// unsigned returns Unlimited for a negative number.
func unsigned(n int64) uint64 {
	if n < 0 {
		return Unlimited
	}
	return uint64(n)
}
