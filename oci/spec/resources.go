package spec

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Resources converts the CRI's limits, for creation and for update. Zero and "" mean "not specified" and are left
// out. Warnings list limits that this machine has no controller for. oom_score_adj is a property of processes: see
// OOMScoreAdj.
func Resources(r *cri.LinuxContainerResources, f Facts) (*specs.LinuxResources, []string, error) {
	out := &specs.LinuxResources{}
	var err error
	if out.CPU, err = cpu(r); err != nil {
		return nil, nil, err
	}
	var warnings, more []string
	if out.Memory, warnings, err = memory(r, f); err != nil {
		return nil, nil, err
	}
	if out.HugepageLimits, more, err = hugepages(r, f); err != nil {
		return nil, nil, err
	}
	if out.Unified, err = unified(r, f); err != nil {
		return nil, nil, err
	}
	nameSwapMax(out, f)
	return out, append(warnings, more...), nil
}

// resources sets the limits, the device rules and oom_score_adj of the container.
func (b *builder) resources() error {
	r := b.in.Config.GetLinux().GetResources()
	limits, warnings, err := Resources(r, b.in.Host)
	if err != nil {
		return err
	}
	adj, more, err := OOMScoreAdj(r, b.in.Host)
	if err != nil {
		return err
	}
	limits.Devices = b.deviceRules()
	if c := limits.CPU; c != nil && c.Quota != nil && *c.Quota < 0 {
		c.Quota = nil // a new cgroup has none; crun before 1.8.4 cannot write it on cgroup v1
	}
	if b.writableCgroups() {
		limitCgroups(limits)
	}
	b.spec.Linux.Resources = limits
	b.spec.Process.OOMScoreAdj = &adj
	b.warnings = append(b.warnings, append(warnings, more...)...)
	return nil
}

// OOMScoreAdj returns the value to set, from -1000 to 1000. It is never left out: a container would inherit the
// daemon's, which systemd units set near -1000. A value below podd's minimum is raised, with a warning if the request
// names a value.
func OOMScoreAdj(r *cri.LinuxContainerResources, f Facts) (int, []string, error) {
	asked := r.GetOomScoreAdj()
	if asked < -1000 || asked > 1000 {
		return 0, nil, invalid("oom_score_adj %d is not between -1000 and 1000", asked)
	}
	if int(asked) >= f.OOMScoreAdjMin {
		return int(asked), nil, nil
	}
	if asked == 0 { // not specified
		return f.OOMScoreAdjMin, nil, nil
	}
	return f.OOMScoreAdjMin, []string{
		fmt.Sprintf("oom_score_adj %d is below podd's minimum, %d is used", asked, f.OOMScoreAdjMin),
	}, nil
}

// The kernel's bounds: kernel/sched/core.c for the period and quota in microseconds, CONFIG_FAIR_GROUP_SCHED for
// shares.
const (
	minPeriod, maxPeriod = 1_000, 1_000_000
	minQuota             = 1_000
	minShares, maxShares = 2, 262_144
)

func cpu(r *cri.LinuxContainerResources) (*specs.LinuxCPU, error) {
	shares, quota, period := r.GetCpuShares(), r.GetCpuQuota(), r.GetCpuPeriod()
	switch {
	case shares != 0 && (shares < minShares || shares > maxShares):
		return nil, invalid("cpu_shares %d is not between %d and %d", shares, minShares, maxShares)
	case period != 0 && (period < minPeriod || period > maxPeriod):
		return nil, invalid("cpu_period %d is not between %d and %d microseconds", period, minPeriod, maxPeriod)
	case quota < -1 || quota > 0 && quota < minQuota:
		return nil, invalid("cpu_quota %d is neither -1 nor at least %d microseconds", quota, minQuota)
	}
	out := specs.LinuxCPU{Cpus: r.GetCpusetCpus(), Mems: r.GetCpusetMems()}
	if shares != 0 {
		out.Shares = new(uint64(shares))
	}
	if quota != 0 {
		out.Quota = &quota
	}
	if period != 0 {
		out.Period = new(uint64(period))
	}
	if !cpuset(out.Cpus) || !cpuset(out.Mems) {
		return nil, invalid("cpuset %q or %q is not a list such as 0-2,4", out.Cpus, out.Mems)
	}
	if out == (specs.LinuxCPU{}) {
		return nil, nil
	}
	return &out, nil
}

// cpuset checks only the characters; the kernel checks the numbers.
func cpuset(list string) bool {
	return list == "" || strings.Trim(list, "0123456789,-") == "" && strings.ContainsAny(list, "0123456789")
}

// memory sets memory+swap to the memory limit if the request does not mention swap: containers have no swap unless
// Kubernetes requests it. On v2 it may do so through unified as well, see nameSwapMax.
func memory(r *cri.LinuxContainerResources, f Facts) (*specs.LinuxMemory, []string, error) {
	limit, swap := r.GetMemoryLimitInBytes(), r.GetMemorySwapLimitInBytes()
	switch {
	case limit < -1:
		return nil, nil, invalid("memory_limit_in_bytes %d is negative", limit)
	case swap < -1:
		return nil, nil, invalid("memory_swap_limit_in_bytes %d is negative", swap)
	case swap > 0 && limit <= 0:
		return nil, nil, invalid("memory_swap_limit_in_bytes %d needs a memory limit: it bounds the sum of both", swap)
	case swap > 0 && swap < limit:
		return nil, nil, invalid(
			"memory_swap_limit_in_bytes %d is below the memory limit of %d, it bounds the sum of both", swap, limit,
		)
	case limit == 0 && swap == 0:
		return nil, nil, nil
	}
	out := &specs.LinuxMemory{}
	if limit != 0 {
		out.Limit = &limit
	}
	var warnings []string
	_, named := r.GetUnified()[swapMax]
	switch {
	case !f.Swap && swap != 0 && swap != limit:
		warnings = []string{"memory_swap_limit_in_bytes has no effect: this kernel does not account swap"}
	case !f.Swap, named && f.CgroupV2:
	case swap != 0:
		out.Swap = &swap
	case limit > 0:
		out.Swap = &limit
	}
	if *out == (specs.LinuxMemory{}) {
		out = nil
	}
	return out, warnings, nil
}

// swapMax is the file of cgroup v2 that bounds swap alone.
const swapMax = "memory.swap.max"

// nameSwapMax adds memory.swap.max on cgroup v2, converted from memory.swap, the sum of memory and swap. Runtimes
// differ in that conversion: crun passes the sum to systemd as MemorySwapMax, runc passes nothing if there is to be no
// swap, and systemd resets a limit that it was not given at its next reload.
func nameSwapMax(out *specs.LinuxResources, f Facts) {
	if !f.CgroupV2 || out.Memory == nil || out.Memory.Swap == nil {
		return
	}
	if out.Unified == nil {
		out.Unified = map[string]string{}
	}
	if *out.Memory.Swap < 0 {
		out.Unified[swapMax] = "max"
		return
	}
	out.Unified[swapMax] = strconv.FormatInt(*out.Memory.Swap-*out.Memory.Limit, 10) // there is a limit, see memory
}

// WithoutSwap removes the swap limits that Resources has set, except those that the request has in r.Unified.
func WithoutSwap(out *specs.LinuxResources, r *cri.LinuxContainerResources) {
	if out.Memory != nil {
		out.Memory.Swap = nil
	}
	if _, named := r.GetUnified()[swapMax]; !named {
		delete(out.Unified, swapMax)
	}
}

// hugepages converts the limits of huge pages. The kubelet sends one for every page size it knows, 0 by default: a
// limit of 0 that cannot be enforced causes neither an error nor a warning.
func hugepages(r *cri.LinuxContainerResources, f Facts) ([]specs.LinuxHugepageLimit, []string, error) {
	var out []specs.LinuxHugepageLimit
	var warnings []string
	for _, h := range r.GetHugepageLimits() {
		size, limit := h.GetPageSize(), h.GetLimit()
		switch {
		case !slices.Contains(f.HugepageSizes, size):
			if limit != 0 {
				return nil, nil, invalid("this machine has no huge pages of %q, it has %q", size, f.HugepageSizes)
			}
		case !f.Hugetlb:
			if limit != 0 {
				warnings = append(
					warnings, fmt.Sprintf("the limit of %s pages has no effect without a hugetlb controller", size),
				)
			}
		case limit > math.MaxInt64:
			return nil, nil, invalid("limit %d of %s pages is too large", limit, size)
		default:
			out = append(out, specs.LinuxHugepageLimit{Pagesize: size, Limit: limit})
		}
	}
	return out, warnings, nil
}

// unified returns the requested cgroup v2 files. Those of the cgroup core, such as cgroup.kill and cgroup.procs, are
// rejected: they are not limits, and a pod must not write them.
func unified(r *cri.LinuxContainerResources, f Facts) (map[string]string, error) {
	set := r.GetUnified()
	if len(set) == 0 {
		return nil, nil
	}
	if !f.CgroupV2 {
		return nil, invalid("unified resources need cgroup v2, this machine has v1")
	}
	for key, value := range set {
		controller, file, ok := strings.Cut(key, ".")
		if !ok || !plain(controller, "_") || !plain(file, "_.") || controller == "cgroup" {
			return nil, invalid("%q is not the file of a cgroup v2 controller", key)
		}
		if err := checkText("value of "+key, value); err != nil {
			return nil, err
		}
	}
	return maps.Clone(set), nil
}
