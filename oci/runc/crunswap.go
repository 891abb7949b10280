package runc

import (
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// fixCrunSwap returns limits that crun understands. With the systemd driver, crun 1.21 writes memory.swap, the sum of
// memory and swap, to memory.swap.max, and uses unified["memory.swap.max"] only without it. Where both are set they
// agree, so memory.swap is dropped.
func (r *Runtime) fixCrunSwap(limits *specs.LinuxResources) *specs.LinuxResources {
	if limits == nil || limits.Memory == nil || !strings.HasPrefix(r.Features().Version, "crun ") {
		return limits
	}
	if _, named := limits.Unified["memory.swap.max"]; !named {
		return limits
	}
	changed, memory := *limits, *limits.Memory
	memory.Swap = nil
	changed.Memory = &memory
	return &changed
}

// fixCrunSwapIn is fixCrunSwap for a container to create.
func (r *Runtime) fixCrunSwapIn(spec *specs.Spec) *specs.Spec {
	if spec == nil || spec.Linux == nil {
		return spec
	}
	changed, linux := *spec, *spec.Linux
	linux.Resources = r.fixCrunSwap(linux.Resources)
	changed.Linux = &linux
	return &changed
}
