package runc

import (
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// swapOnce returns limits as this runtime understands them. crun with the systemd driver takes memory.swap, the sum of
// memory and swap, for the value of memory.swap.max, and looks at the latter only without the former (seen with 1.21). So
// where both are there, which then agree, it gets the latter alone.
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

// swapOnceIn is swapOnce for a container to be created.
func (r *Runtime) fixCrunSwapIn(spec *specs.Spec) *specs.Spec {
	if spec == nil || spec.Linux == nil {
		return spec
	}
	changed, linux := *spec, *spec.Linux
	linux.Resources = r.fixCrunSwap(linux.Resources)
	changed.Linux = &linux
	return &changed
}
